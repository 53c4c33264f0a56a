"""Unix signals as facts: HUP reads config and GPUs again, TERM, INT and QUIT end the agent."""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

from reactor.events import Fact, SignalReceived

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class SignalSource:
    name = "signals"

    def __init__(self, *, publish: Callable[[Fact], object]) -> None:
        self._publish = publish

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(*SIGNALS) as received:
            task_status.started()
            async for number in received:
                self._publish(SignalReceived(name=signal.Signals(number).name.removeprefix("SIG")))
