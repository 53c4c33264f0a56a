"""What NVML tells without being asked, as facts. It judges nothing: which XID means what is for ``conditions``.

A watch that fails is a fault of this source and of no GPU; the source goes on, so that events come at once when the
watch works again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

import trio

from reactor.events import (
    DevicesChanged,
    EccReported,
    Fact,
    FaultUnattributed,
    GpuLost,
    RecoveryActionChanged,
    SourceFailed,
    SourceRecovered,
    WorkerLost,
    WorkerStarted,
    XidReported,
)
from reactor.model.condition import Placement
from reactor.model.ids import PciAddress
from reactor.nvml import Nvml, notes
from reactor.nvml.patience import FAILED_AFTER, LONGEST_PAUSE

RECOVERY_ACTION_CHANGED = 154
"""The XID with which the driver says that it asks for another recovery action."""


class HealthSource:
    name = "health"

    def __init__(self, nvml: Nvml, *, publish: Callable[[Fact], object]) -> None:
        self._nvml = nvml
        self._publish = publish
        self._workers = 0
        self._unwatched = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            note = await self._nvml.notes.receive()
            for fact in self._facts(note):
                self._publish(fact)

    def _facts(self, note: notes.Note) -> Iterator[Fact]:
        match note:
            case notes.Xid() | notes.Ecc() | notes.RecoveryChanged() | notes.Unavailable():
                yield from _of_a_gpu(note)
            case notes.MigChanged():
                yield DevicesChanged(what=f"MIG configuration of {note.gpu or 'a GPU'} changed")
            case notes.DriverEvent():
                yield DevicesChanged(what="driver bound to a GPU" if note.bound else "driver unbound from a GPU")
            case notes.WorkerUp():
                self._workers += 1
                yield WorkerStarted(pid=note.pid)
                if self._unwatched:
                    yield self._watched()  # its watch begins anew; if that fails too, it says so itself
                if self._workers > 1:
                    yield DevicesChanged(what="NVML worker replaced, events may have been missed")
            case notes.WorkerGone():
                yield WorkerLost(hung=note.hung, error=note.error, gpu_index=note.gpu_index)
            case notes.NotesLost():
                yield FaultUnattributed(what="more NVML events than could be kept")
            case _:
                yield from self._of_the_watch(note)

    def _of_the_watch(self, note: notes.WatchRestarted | notes.WatchFailed | notes.WatchRecovered) -> Iterator[Fact]:
        match note:
            case notes.WatchRestarted():
                yield DevicesChanged(what="event watch restarted", error=note.error)
            case notes.WatchFailed():
                self._unwatched = True
                error = f"GPUs are not watched: {note.error}"
                yield SourceFailed(source=self.name, error=error, attempt=FAILED_AFTER, retry_in=LONGEST_PAUSE)
            case notes.WatchRecovered():
                yield self._watched()
                yield DevicesChanged(what="event watch works again")
            case _:
                assert_never(note)

    def _watched(self) -> Fact:
        self._unwatched = False
        return SourceRecovered(source=self.name, attempts=FAILED_AFTER)


def _of_a_gpu(note: notes.Xid | notes.Ecc | notes.RecoveryChanged | notes.Unavailable) -> Iterator[Fact]:
    if note.gpu is None:
        yield FaultUnattributed(what=f"{_what(note)} at {_where(note.pci)}")
        return
    match note:
        case notes.Xid():
            yield XidReported(gpu=note.gpu, placement=Placement(gi=note.gi, ci=note.ci), xid=note.code)
            if note.code == RECOVERY_ACTION_CHANGED:
                yield DevicesChanged(what=f"recovery action of {note.gpu} changed (XID {note.code})")
        case notes.Ecc():
            yield EccReported(gpu=note.gpu, placement=Placement(gi=note.gi, ci=note.ci))
        case notes.RecoveryChanged():
            if note.action is None:
                yield DevicesChanged(what=f"recovery action of {note.gpu} changed and could not be read")
            else:
                yield RecoveryActionChanged(gpu=note.gpu, action=note.action)
        case notes.Unavailable():
            yield GpuLost(gpu=note.gpu, error="the driver reports the GPU as unavailable")
        case _:
            assert_never(note)


def _what(note: notes.Xid | notes.Ecc | notes.RecoveryChanged | notes.Unavailable) -> str:
    match note:
        case notes.Xid():
            return f"XID {note.code}"
        case notes.Ecc():
            return "double-bit ECC error"
        case notes.RecoveryChanged():
            return "change of recovery action"
        case notes.Unavailable():
            return "GPU unavailable"
        case _:
            assert_never(note)


def _where(pci: PciAddress | None) -> str:
    return f"the unknown GPU {pci}" if pci else "a device that could not be told"
