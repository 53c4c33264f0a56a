"""What the worker tells without being asked, as frozen values: device events, and the worker's own coming and going."""

from __future__ import annotations

from msgspec import Struct

from reactor.model.gpu import RecoveryAction
from reactor.model.ids import GpuUuid, PciAddress


class Xid(Struct, frozen=True, kw_only=True):
    """``gpu`` is None if the device of the event could not be told, ``pci`` may then still be known."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None
    gi: int | None = None
    ci: int | None = None
    code: int


class Ecc(Struct, frozen=True, kw_only=True):
    """Double-bit ECC error."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None
    gi: int | None = None
    ci: int | None = None


class RecoveryChanged(Struct, frozen=True, kw_only=True):
    """``action`` is None if the driver told of a change and the query that followed failed: look again."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None
    action: RecoveryAction | None


class Unavailable(Struct, frozen=True, kw_only=True):
    """The driver says that this GPU cannot be used any more."""

    gpu: GpuUuid | None
    pci: PciAddress | None = None


class MigChanged(Struct, frozen=True, kw_only=True):
    gpu: GpuUuid | None
    pci: PciAddress | None = None


class DriverEvent(Struct, frozen=True, kw_only=True):
    """A driver was bound to, or unbound from, some GPU of this node."""

    bound: bool


class WatchRestarted(Struct, frozen=True, kw_only=True):
    """A wait for events failed and the watch was made anew: events may have been missed, no GPU is to blame."""

    error: str


class WatchFailed(Struct, frozen=True, kw_only=True):
    """The watch failed several times in a row; it is tried on."""

    error: str


class WatchRecovered(Struct, frozen=True, kw_only=True):
    """A wait went well after ``WatchFailed``."""


class WorkerUp(Struct, frozen=True, kw_only=True):
    pid: int


class WorkerGone(Struct, frozen=True, kw_only=True):
    """The worker died, or hung and was left behind. A renewal that was asked for is not told."""

    hung: bool
    error: str
    gpu_index: int | None = None


class NotesLost(Struct, frozen=True, kw_only=True):
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
