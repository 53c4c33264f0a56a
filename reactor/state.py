"""The one value that everything is derived from. ``reducer.py`` is its only writer.

Mappings are replaced, never changed in place: a slice that did not move is the same object, which is what
handlers compare to see whether they have work.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from reactor.events import ConfigOrigin
from reactor.model.condition import Condition, Policy
from reactor.model.config import Config, ConfigProblem
from reactor.model.gpu import Driver, DriverState, Gpu
from reactor.model.hold import Hold, HoldKey, PodRef
from reactor.model.ids import GpuUuid, PciAddress, ResourceName
from reactor.model.kubelet import Registration, SocketIdentity, StreamId
from reactor.plan import EMPTY, Plan

WRITTEN_WITHIN = 1.0
"""Seconds from a list to the checkpoint that a busy kubelet writes because of it."""


class ConfigState(Struct, frozen=True, kw_only=True):
    config: Config | None = None
    """In force; None: nothing was ever accepted, nothing is served."""
    digest: str = ""
    origin: ConfigOrigin | None = None
    path: str = ""
    text: str = field(default="")
    notes: tuple[str, ...] = ()
    """What people should know of a text that is all right."""
    accepted_wall: float | None = None
    judged: bool = False
    """Whether a text of this life was accepted or refused; until then only an earlier life's config is known."""
    rejected_digest: str = ""
    rejected_path: str = ""
    problems: tuple[ConfigProblem, ...] = ()
    """Of the newest text, if that was rejected."""


class DriverStatus(Struct, frozen=True, kw_only=True):
    state: DriverState = DriverState.UNKNOWN
    error: str = ""
    driver: Driver | None = None
    generation: int = 0
    since: float = 0.0
    """Unix time."""


class Leaving(Struct, frozen=True, kw_only=True):
    """An id that was listed and is no longer wanted: listed Unhealthy until it can go."""

    gpu: GpuUuid | None
    numa: tuple[int, ...]
    revision: int
    """State revision that made it leave: an offer of at least this revision shows it Unhealthy."""
    sent_at: float | None = None
    """When that offer went out on a stream; it may go 5 s later."""
    reason: str = ""


class Plugin(Struct, frozen=True, kw_only=True):
    """One resource's server, as facts have told of it."""

    socket: str
    offered: bool = False
    """Whether the kubelet's plugin watcher can find it."""
    registered: SocketIdentity | None = None
    """The kubelet's life that took our Register; None: not registered so, see ``Kubelet.took``."""
    registered_at: float | None = None
    """When the kubelet took it, in whichever way; None: it has not."""
    streams: frozenset[StreamId] = frozenset()
    spent: bool = False
    """Its socket was used for a registration that ended, or its file was removed: the next Register needs a new one."""
    sent_revision: int | None = None
    """Revision of the newest list that went out on a live stream; None: none yet."""
    sent_healthy: int = 0
    sent_unhealthy: int = 0
    sent_nudge: int = 0
    sent_at: float | None = None


class Kubelet(Struct, frozen=True, kw_only=True):
    registration: Registration = Registration.SOCKET
    identity: SocketIdentity | None = None
    """None: it does not answer, or nobody asked yet."""
    last: SocketIdentity | None = None
    """Of the newest life that was seen, by us or (from the state file) by the agent before us."""
    doubted: bool = False
    """A stream of ours ended: it may be gone or new, the kubelet source is to probe at once."""
    up_at: float | None = None
    pins_cpus: bool = False
    """As last read."""
    reason: str = ""
    seen: bool = False
    """Whether its socket was ever there for this agent to see."""
    life: int = 0
    """Counts the lives of the kubelet that this agent saw begin."""
    plugins: Mapping[ResourceName, Plugin] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        """It answers, or it came to us although its own socket is not to be seen."""
        found_us = self.registration is Registration.WATCHER and any(each.streams for each in self.plugins.values())
        return self.identity is not None or found_us

    def took(self, plugin: Plugin) -> bool:
        """Whether this life of it has registered the plugin."""
        if self.registration is Registration.WATCHER:
            return plugin.registered_at is not None or bool(plugin.streams)
        return plugin.registered is not None and plugin.registered == self.identity

    @property
    def told(self) -> float | None:
        """When this life of it was sent a list (monotonic); the newest of each resource counts, the first of these."""
        sent = [each.sent_at for each in self.plugins.values() if each.sent_at is not None and self.took(each)]
        return min(sent, default=None)

    def wrote(self, asked_at: float | None) -> bool:
        """Whether a checkpoint read then is this life's own: it writes the file anew with each list that it gets."""
        return self.told is not None and asked_at is not None and asked_at > self.told + WRITTEN_WITHIN


class Books(Struct, frozen=True, kw_only=True):
    """How far the kubelet's books were read."""

    checkpoint_known: bool = False
    """The checkpoint was read, or found unreadable, at least once: nothing is advertised before."""
    checkpoint_error: str = ""
    checkpoint_life: int = -1
    """Life of the kubelet at the newest readable checkpoint."""
    looked_life: int = -1
    """The same, readable or not: nothing is registered with a kubelet before its first checkpoint was looked at."""
    looked_at: float | None = None
    """asked_at of the newest look."""
    checkpoint_ids: frozenset[HoldKey] = frozenset()
    listed_at: float | None = None
    """asked_at of the newest List."""
    list_error: str = ""
    pods: frozenset[PodRef] = frozenset()
    """Pods of the newest List, with devices or without."""


class Nudge(Struct, frozen=True):
    """How often an unchanged list of a resource was asked to be sent again, and when last (monotonic)."""

    count: int
    at: float


class Fault(Struct, frozen=True, kw_only=True):
    """Something of the agent itself that does not work now."""

    name: str
    """Stable, the same in status, log and metrics: handler.register, source.podresources, config.rejected, ..."""
    message: str
    since: float
    """Unix time."""
    count: int = 1


class State(Struct, frozen=True, kw_only=True):
    revision: int = 0
    """seq of the last event that changed anything."""
    version: str = ""
    run: str = ""
    boot: str = ""
    simulated: bool = False
    started_wall: float = 0.0
    clock: float | None = None
    """Unix time less monotonic time, when that last moved: all Unix times in here go by it. None: not started."""
    stopping: bool = False
    stranded: str = ""
    """Why only another start helps; empty while this one is of use."""
    reloads: int = 0
    """Counts the times a person asked to read the config and scan again (SIGHUP)."""
    resync: float = 30.0
    """Seconds between scans that nothing asked for."""
    environment: Policy = field(default_factory=Policy)
    """What the environment says of XIDs."""
    policy: Policy = field(default_factory=Policy)
    """What XIDs mean now: the environment's word, and under it the config's."""

    config: ConfigState = ConfigState()
    driver: DriverStatus = DriverStatus()
    gpus: tuple[Gpu, ...] = ()
    """GPUs to plan with: those that answered, and those that NVML counts but that do not answer, as last known."""
    nodes: frozenset[str] = frozenset()
    scanned_at: float | None = None
    """Monotonic time of the newest good scan."""
    conditions: Mapping[GpuUuid, tuple[Condition, ...]] = field(default_factory=dict)
    relapses: Mapping[GpuUuid, tuple[float, ...]] = field(default_factory=dict)
    """Unix times at which conditions of a GPU were lifted, of the last 24 hours."""
    pci: Mapping[GpuUuid, PciAddress] = field(default_factory=dict)
    """Where each GPU that has a condition sits, also when it is gone: another UUID there lifts a hardware fault."""

    plan: Plan = EMPTY
    holds: Mapping[HoldKey, Hold] = field(default_factory=dict)
    freed: Mapping[HoldKey, str] = field(default_factory=dict)
    """Ids whose pod ended while the kubelet's checkpoint still has them for it (its UID): that entry holds nothing."""
    leaving: Mapping[HoldKey, Leaving] = field(default_factory=dict)
    refused: Mapping[HoldKey, str] = field(default_factory=dict)
    """Ids that Allocate refused for their own fault, with the reason: Unhealthy until the next good scan."""
    grants: int = 0
    nudges: Mapping[ResourceName, Nudge] = field(default_factory=dict)
    books: Books = Books()
    kubelet: Kubelet = Kubelet()
    deadlines: Mapping[str, float] = field(default_factory=dict)
    """Monotonic times at which the timer source is to publish DeadlinePassed, by name."""
    faults: Mapping[str, Fault] = field(default_factory=dict)
