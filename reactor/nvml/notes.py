"""What the worker tells without being asked, as frozen values: device events, and the worker's own coming and going."""

from __future__ import annotations

from dataclasses import dataclass

from reactor.model.gpu import RecoveryAction
from reactor.model.ids import GpuUuid, PciAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """``gpu`` is None if the device of the event could not be told, ``pci`` may then still be known."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None
    gi: int | None = None
    ci: int | None = None
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecc:
    """Double-bit ECC error."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None
    gi: int | None = None
    ci: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryChanged:
    """``action`` is None if the driver told of a change and the query that followed failed: look again."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None
    action: RecoveryAction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """The driver says that this GPU cannot be used any more."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigChanged:
    gpu: GpuUuid | None
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEvent:
    """A driver was bound to, or unbound from, some GPU of this node."""

    bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRestarted:
    """A wait for events failed and the watch was made anew: events may have been missed, no GPU is to blame."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFailed:
    """The watch failed several times in a row; it is tried on."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRecovered:
    """A wait went well after ``WatchFailed``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUp:
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGone:
    """The worker died, or hung and was left behind. A renewal that was asked for is not told."""

    hung: bool
    error: str
    gpu_index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesLost:
    """Nobody took notes for so long that some were dropped."""


Note = (
    Xid
    | Ecc
    | RecoveryChanged
    | Unavailable
    | MigChanged
    | DriverEvent
    | WatchRestarted
    | WatchFailed
    | WatchRecovered
    | WorkerUp
    | WorkerGone
    | NotesLost
)
