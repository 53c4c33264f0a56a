"""Tells the state when a moment has come that it asked to be told of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from reactor.events import DeadlinePassed, Fact
from reactor.state import State

Until = Callable[[Callable[[State], bool]], Awaitable[State]]


class TimerSource:
    name = "timer"

    def __init__(self, *, publish: Callable[[Fact], object], until: Until) -> None:
        self._publish = publish
        self._until = until

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            deadlines = (await self._until(lambda state: bool(state.deadlines))).deadlines
            if await self._stand(deadlines):
                now = trio.current_time()
                for name, at in sorted(deadlines.items(), key=lambda item: item[1]):
                    if at <= now:
                        self._publish(DeadlinePassed(name=name))

    async def _stand(self, deadlines: Mapping[str, float]) -> bool:
        """Wait for the first of these deadlines; False if others are in force before it comes."""
        with trio.move_on_at(min(deadlines.values())) as scope:
            await self._until(lambda state: state.deadlines is not deadlines)
        return scope.cancelled_caught
