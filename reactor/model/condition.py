"""Why a GPU is not healthy, since when, on what evidence."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class Placement(Struct, frozen=True):
    """Where on a GPU a fault sits. NVML's 0xFFFFFFFF ("not there") is None."""

    gi: int | None = None
    ci: int | None = None

    @property
    def whole(self) -> bool:
        return self.gi is None


WHOLE_GPU = Placement()

FOREVER = 1e12
"""Seconds that never pass; finite, for JSON knows no other numbers."""


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


class Condition(Struct, frozen=True, kw_only=True):
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


class Policy(Struct, frozen=True, kw_only=True):
    """What the operator changes of the rules. The environment goes before the config, a number before a class."""

    by_number: Mapping[int, XidClass] = field(default_factory=dict)
    by_class: Mapping[XidClass, XidClass] = field(default_factory=dict)
    """Class of the table -> class in force."""
    disabled: frozenset[int] = frozenset()
    enabled: frozenset[int] = frozenset()
    disable_all: bool = False
    """No XID, ECC event or recovery action condemns. A GPU that does not answer is Unhealthy all the same."""
    enable_all: bool = False
    quiet_unknown: float = 60.0
    """Seconds without new evidence."""
    quiet_unreachable: float = 5.0
    relapse_limit: int = 3
    relapse_window: float = 24 * 3600.0
