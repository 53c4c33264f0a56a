"""Why a GPU is not healthy, since when, on what evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Placement:
    """Where on a GPU a fault sits. NVML's 0xFFFFFFFF ("not there") is None."""

    gi: int | None = None
    ci: int | None = None

    @property
    def whole(self) -> bool:
        return self.gi is None


WHOLE_GPU = Placement()


class XidClass(StrEnum):
    """spec: the table "Ours" of pains.md 1a; every code is in exactly one class."""

    APPLICATION = "application"
    IGNORE = "ignore"
    RESET = "reset"
    RESTART = "restart"
    HARDWARE = "hardware"
    UNKNOWN = "unknown"


class FaultClass(StrEnum):
    """What lifts a condition."""

    RESET = "reset"
    """Driver re-bound, device gone and back, recovery action returned to none, new boot."""
    RESTART = "restart"
    """A new boot."""
    HARDWARE = "hardware"
    """A person, or another UUID at that PCI address."""
    UNKNOWN = "unknown"
    """The handle works, recovery action none where the driver has one, and a quiet time."""
    UNREACHABLE = "unreachable"
    """As UNKNOWN, with its own, shorter quiet time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    fault: FaultClass
    reason: str
    """One word of a closed set for machines: xid, ecc, lost, hung, error, reset_required."""
    message: str
    """For people."""
    placement: Placement = WHOLE_GPU
    xid: int | None = None
    since: float
    """Unix time of the first evidence."""
    last: float
    """Unix time of the newest evidence."""
    count: int = 1
    boot: str
    """Boot id of the node at that time; sticky conditions outlive the agent, not always the boot."""
    action_seen: bool = False
    """Whether the driver asked for a recovery action since: only then does "none" mean that it was done."""
    gone_seen: bool = False
    """Whether the GPU, or its driver, was away since."""
    needs_person: bool = False
    """Third relapse within 24 hours."""
    synthetic: bool = False
    """Injected by a person, marked so wherever it shows."""

    @property
    def key(self) -> tuple[FaultClass, str, Placement, int | None]:
        return (self.fault, self.reason, self.placement, self.xid)

    @property
    def sticky(self) -> bool:
        """Whether it is kept on disk: a restart of the agent must not launder it."""
        return self.fault in (FaultClass.RESET, FaultClass.RESTART, FaultClass.HARDWARE) or self.needs_person


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What faults mean on this node. ``reactor.conditions`` decides with it."""

    overrides: tuple[tuple[int, XidClass], ...] = ()
    """XIDs that have another class than the table's, by number."""
    unhealthy: frozenset[int] = frozenset()
    """XIDs that always make a GPU Unhealthy, with the class of the table, or unknown where that would not."""
    ignore_all: bool = False
    """Every XID is ignored, except those in ``unhealthy``."""
    unhealthy_all: bool = False
    """Every XID makes the GPU Unhealthy."""
    quiet_unknown: float = 60.0
    """Seconds without news before an unknown XID may be forgotten."""
    quiet_unreachable: float = 5.0
    relapses: int = 3
    """The how-manieth fault within the window needs a person."""
    window: float = 86400.0
