"""What NVML shows: GPUs, those that did not answer, the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from reactor.model.ids import GpuUuid, PciAddress


class MigMode(StrEnum):
    UNSUPPORTED = "unsupported"
    DISABLED = "disabled"
    ENABLED = "enabled"


class RecoveryAction(StrEnum):
    """NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, as nvidia-ml-py names its values."""

    NONE = "none"
    RESET = "reset"
    REBOOT = "reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    OTHER = "other"


class FailureKind(StrEnum):
    """Why one GPU did not answer a scan."""

    LOST = "lost"
    RESET_REQUIRED = "reset_required"
    HUNG = "hung"
    ERROR = "error"


class DriverState(StrEnum):
    """How far NVML gets on this node."""

    UNKNOWN = "unknown"
    """Not asked yet."""
    READY = "ready"
    ABSENT = "absent"
    """No libnvidia-ml.so.1, or no driver module behind it: a normal state, devices are withdrawn."""
    MISMATCH = "mismatch"
    """Library and module disagree: devices are withdrawn until they agree."""
    DENIED = "denied"
    HUNG = "hung"
    """The worker did not answer in time: says nothing about the GPUs, what was known stays."""
    FAILED = "failed"
    """Any other error, or the worker died: says nothing about the GPUs, what was known stays."""

    @property
    def definite(self) -> bool:
        """Whether NVML itself said that no GPU can be used; otherwise the last inventory stays."""
        return self in (DriverState.ABSENT, DriverState.MISMATCH)


class Driver(Struct, frozen=True, kw_only=True):
    version: str
    cuda: tuple[int, int] | None
    """CUDA version that the driver supports, (major, minor)."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One physical GPU that answered. What NVML does not support on this part is None."""

    uuid: GpuUuid
    index: int
    """NVML index: order only, it moves when a GPU goes."""
    minor: int
    """N of /dev/nvidiaN; not the index."""
    pci: PciAddress
    """Lower case domain:bus:device.function with a 4-digit domain, as sysfs has it."""
    product: str
    memory: int | None
    """Total memory in bytes."""
    compute: tuple[int, int] | None
    """CUDA compute capability, (major, minor)."""
    numa: int | None
    """NUMA node, None if the host knows none (-1, missing, or not in /sys/devices/system/node)."""
    mig: MigMode
    recovery: RecoveryAction | None
    """What the driver asks for; None where the driver has no such field or the query failed."""
    monitored: bool
    """Whether XIDs of this GPU reach the event watch."""


class GpuFailure(Struct, frozen=True, kw_only=True):
    """One GPU that NVML counts and that did not answer. As much of its identity as could be read."""

    index: int
    kind: FailureKind
    error: str
    uuid: GpuUuid | None = None
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One scan: what NVML showed, with the errors of single GPUs beside the GPUs that answered."""

    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    """By index."""
    failures: tuple[GpuFailure, ...] = ()
    nodes: frozenset[str] = frozenset()
    """Existing device nodes, as paths under the dev root: /dev/nvidiactl, /dev/nvidia3, ..."""
    generation: int = 0
    """Counts the driver's lives: a new number means that NVML was initialised anew after the driver was away."""
    took: float | None = field(default=None, compare=False)
    """Seconds of the calls that looked; None: not measured."""
    opened: float | None = field(default=None, compare=False)
    """Seconds of NVML's initialisation, if this scan came right after it."""
