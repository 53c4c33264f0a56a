"""Plain values of ``library`` as values of the model; also the messages between worker and client."""

from __future__ import annotations

from typing import Literal

import msgspec

from reactor.model.gpu import Driver, FailureKind, Gpu, GpuFailure, Inventory, MigMode, RecoveryAction
from reactor.model.ids import GpuUuid, PciAddress
from reactor.nvml import notes
from reactor.nvml.notes import Note


class RawDriver(msgspec.Struct, frozen=True):
    version: str
    cuda: tuple[int, int] | None


class RawGpu(msgspec.Struct, frozen=True):
    index: int
    uuid: str
    pci: str
    product: str
    minor: int
    memory: int | None
    compute: tuple[int, int] | None
    numa: int | None
    mig: MigMode
    recovery: RecoveryAction | None
    monitored: bool


class RawFailure(msgspec.Struct, frozen=True):
    index: int
    kind: FailureKind
    error: str
    uuid: str | None = None
    pci: str | None = None


class RawScan(msgspec.Struct, frozen=True):
    driver: RawDriver
    gpus: tuple[RawGpu, ...]
    failures: tuple[RawFailure, ...]
    nodes: tuple[str, ...]


Kind = Literal[
    "xid",
    "ecc",
    "recovery",
    "unavailable",
    "mig",
    "other",
    "driver",
    "watch_restarted",
    "watch_failed",
    "watch_recovered",
]


class RawEvent(msgspec.Struct, frozen=True):
    kind: Kind
    gpu: str | None = None
    pci: str | None = None
    gi: int | None = None
    ci: int | None = None
    code: int = 0
    action: RecoveryAction | None = None
    bound: bool = False
    error: str = ""


class Message(msgspec.Struct, frozen=True):
    """From the worker."""

    kind: Literal["hello", "opening", "opened", "touching", "scan", "failed", "renew", "event", "beat", "without"]
    pid: int = 0
    index: int | None = None
    scan: RawScan | None = None
    state: str = ""
    error: str = ""
    spent: bool = False
    """The worker cannot come to NVML any more, another could."""
    event: RawEvent | None = None
    beats: int = 0
    what: str = ""
    took: float | None = None
    opened: float | None = None


def inventory(scan: RawScan, generation: int, known: dict[int, Gpu]) -> Inventory:
    """``known`` gives failures the identity of the GPU that was last seen at that index."""
    gpus = tuple(
        Gpu(
            uuid=GpuUuid(raw.uuid),
            index=raw.index,
            minor=raw.minor,
            pci=PciAddress(raw.pci),
            product=raw.product,
            memory=raw.memory,
            compute=raw.compute,
            numa=raw.numa,
            mig=raw.mig,
            recovery=raw.recovery,
            monitored=raw.monitored,
        )
        for raw in scan.gpus
    )
    answered = {gpu.uuid for gpu in gpus}
    return Inventory(
        driver=Driver(version=scan.driver.version, cuda=scan.driver.cuda),
        gpus=gpus,
        failures=tuple(_failure(raw, known.get(raw.index), answered) for raw in scan.failures),
        nodes=frozenset(scan.nodes),
        generation=generation,
    )


def _failure(raw: RawFailure, last: Gpu | None, answered: set[GpuUuid]) -> GpuFailure:
    uuid = None if raw.uuid is None else GpuUuid(raw.uuid)
    pci = None if raw.pci is None else PciAddress(raw.pci)
    # Indices move when a GPU goes: a GPU that answered under another index is not the one that failed here.
    if uuid is None and last is not None and last.uuid not in answered and pci in (None, last.pci):
        uuid, pci = last.uuid, last.pci
    return GpuFailure(index=raw.index, kind=raw.kind, error=raw.error, uuid=uuid, pci=pci)


def note(raw: RawEvent, at: dict[PciAddress, GpuUuid]) -> Note | None:
    """``at`` names a GPU by its address, where the event could tell that only. None: of no interest."""
    pci = None if raw.pci is None else PciAddress(raw.pci)
    gpu = GpuUuid(raw.gpu) if raw.gpu is not None else at.get(pci) if pci is not None else None
    match raw.kind:
        case "xid":
            return notes.Xid(gpu=gpu, pci=pci, gi=raw.gi, ci=raw.ci, code=raw.code)
        case "ecc":
            return notes.Ecc(gpu=gpu, pci=pci, gi=raw.gi, ci=raw.ci)
        case "recovery":
            return notes.RecoveryChanged(gpu=gpu, pci=pci, action=raw.action)
        case "unavailable":
            return notes.Unavailable(gpu=gpu, pci=pci)
        case "mig":
            return notes.MigChanged(gpu=gpu, pci=pci)
        case "driver":
            return notes.DriverEvent(bound=raw.bound)
        case "watch_restarted":
            return notes.WatchRestarted(error=raw.error)
        case "watch_failed":
            return notes.WatchFailed(error=raw.error)
        case "watch_recovered":
            return notes.WatchRecovered()
        case "other":
            return None
