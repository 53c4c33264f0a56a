"""What the agent needs of NVML, whoever makes the calls."""

from __future__ import annotations

from typing import Protocol

import trio

from reactor.model.errors import Transient
from reactor.model.gpu import DriverState, Inventory
from reactor.nvml.notes import Note


class NvmlUnavailable(Transient):
    """A scan did not come to an inventory; ``state`` says how far NVML got."""

    def __init__(self, state: DriverState, text: str) -> None:
        super().__init__(text)
        self.state = state


class Nvml(Protocol):
    @property
    def notes(self) -> trio.MemoryReceiveChannel[Note]:
        """Events as they come, for one reader; it outlives workers and is never closed."""
        ...

    @property
    def beats(self) -> int:
        """Grows while the event watch turns, also when nothing happens."""
        ...

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; everything else works only while this runs."""
        ...

    async def scan(self) -> Inventory:
        """Look at driver and GPUs; raises NvmlUnavailable. Callers at the same time share one scan.

        Events of a GPU are watched before it is looked at, so that nothing happens unseen in between.
        """
        ...

    async def renew(self, reason: str) -> None:
        """Let go of NVML, driver library and device nodes, and begin anew."""
        ...
