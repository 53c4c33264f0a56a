"""What a script makes happen on the simulated node, and what the kubelet must then be seen to have: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PATIENCE = 10.0
"""Seconds that an expectation has to come true, unless it says ``within``."""


@dataclass(frozen=True, slots=True)
class Say:
    """A headline. What the log must show is looked for from the last one on."""

    text: str


@dataclass(frozen=True, slots=True)
class WriteConfig:
    text: str


@dataclass(frozen=True, slots=True)
class RunPod:
    name: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeletePod:
    name: str


@dataclass(frozen=True, slots=True)
class Xid:
    card: int
    code: int


@dataclass(frozen=True, slots=True)
class Move:
    """``unplug`` and ``plug``: the card goes, or comes back. ``lose`` and ``find``: it stops answering, or answers."""

    verb: str
    card: int


@dataclass(frozen=True, slots=True)
class Kubelet:
    """``restart``: ends and starts again after ``down`` seconds; ``stop`` and ``start``: one half of it."""

    verb: str
    down: float = 0.0


@dataclass(frozen=True, slots=True)
class RestartAgent:
    """The agent ends as on SIGTERM and starts again; pods run on."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Show:
    """Say in one line what the kubelet sees."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many ids of a resource the kubelet lists, by health; None: any number."""

    resource: str
    healthy: int | None = None
    unhealthy: int | None = None


@dataclass(frozen=True, slots=True)
class CardIs:
    """``healthy`` or ``unhealthy``: every id of that card is; ``absent``: no id of it is listed."""

    card: int
    state: str


@dataclass(frozen=True, slots=True)
class PodIs:
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Logged:
    """The log has a line of this event with this text in it."""

    event: str
    text: str


Check = Counts | CardIs | PodIs | Logged


@dataclass(frozen=True, slots=True)
class Expect:
    check: Check
    within: float = PATIENCE


Act = WriteConfig | RunPod | DeletePod | Xid | Move | Kubelet | RestartAgent
"""What happens to the node."""
Action = Act | Say | Wait | Show | Expect


@dataclass(frozen=True, slots=True)
class Step:
    line: int
    text: str
    """As it was written, without what follows a line of ``config``."""
    action: Action


@dataclass(frozen=True, slots=True)
class Script:
    node: str
    """Which cards the node has, such as ``8xH100``."""
    steps: tuple[Step, ...]
