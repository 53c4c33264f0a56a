"""Who holds which id: the kubelet's checkpoint and podresources List, asked in rounds.

The checkpoint is read once before anything else, since nothing is advertised before it is known. Then a round is a
List and, after it, the checkpoint: at most one a second, after grants and in a new life of the kubelet, each second
while something waits for an id to be free, and every 30 s otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from reactor.events import CheckpointFailed, CheckpointRead, Fact, PodsListed, PodsListFailed
from reactor.model.errors import Refused, Transient
from reactor.model.hold import Checkpoint, PodDevices
from reactor.state import State

Until = Callable[[Callable[[State], bool]], Awaitable[State]]

SHORTEST = 1.0
LONGEST = 30.0


class PodResourcesSource:
    name = "podresources"

    def __init__(
        self,
        read_list: Callable[[], Awaitable[tuple[PodDevices, ...]]],
        read_checkpoint: Callable[[], Awaitable[Checkpoint]],
        *,
        publish: Callable[[Fact], object],
        until: Until,
        state: Callable[[], State],
        wants: Callable[[State], bool],
    ) -> None:
        self._read_list = read_list
        self._read_checkpoint = read_checkpoint
        self._publish = publish
        self._until = until
        self._state = state
        self._wants = wants
        self._life: int | None = None
        """Life of the kubelet whose checkpoint was read."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            begun = trio.current_time()
            await self._first_checkpoint()
            before = self._state()
            await self._list()
            await self._checkpoint()
            await self._rest(begun + SHORTEST)
            with trio.move_on_at(begun + LONGEST):
                await self._until(partial(self._is_due, before))

    async def _rest(self, end: float) -> None:
        """No List before ``end``; a new life of the kubelet has its checkpoint read all the same."""
        with trio.move_on_at(end):
            await self._until(lambda state: state.kubelet.life != self._life)
            await self._first_checkpoint()
            await trio.sleep_until(end)

    async def _first_checkpoint(self) -> None:
        """Read a new kubelet's checkpoint before it is rewritten: what it lost with its predecessor can be seen now."""
        if self._life != self._state().kubelet.life:
            self._life = self._state().kubelet.life
            await self._checkpoint()

    def _is_due(self, before: State, state: State) -> bool:
        return state.grants != before.grants or state.kubelet.life != before.kubelet.life or self._wants(state)

    async def _list(self) -> None:
        asked_at = trio.current_time()
        try:
            pods = await self._read_list()
        except (Transient, Refused) as exc:
            self._publish(PodsListFailed(error=str(exc)))
        else:
            self._publish(PodsListed(pods=pods, asked_at=asked_at))

    async def _checkpoint(self) -> None:
        asked_at = trio.current_time()
        try:
            checkpoint = await self._read_checkpoint()
        except (Transient, Refused) as exc:
            missing = isinstance(exc.__cause__, FileNotFoundError)
            self._publish(CheckpointFailed(error=str(exc), missing=missing))
        else:
            self._publish(CheckpointRead(entries=checkpoint.entries, resources=checkpoint.resources, asked_at=asked_at))
