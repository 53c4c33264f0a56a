"""Every fact that can be on the bus, in one place: past tense, frozen, each with a key that folds repeats.

Sources report what they saw, handlers and servers what they did. The log name of a fact is ``<noun>.<past>``
(``record.py`` decides how it is told).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reactor.model.condition import Condition, Placement, Policy
from reactor.model.config import Config, ConfigProblem
from reactor.model.gpu import DriverState, Inventory, RecoveryAction
from reactor.model.hold import CheckpointEntry, Hold, HoldKey, PodDevices
from reactor.model.ids import DeviceId, GpuUuid, PciAddress, ResourceName
from reactor.model.kubelet import SocketIdentity, StreamId

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Base of all facts. ``synthetic`` marks what a person injected."""

    synthetic: bool = False

    @property
    def key(self) -> Key:
        """Facts of one key fold into the newest in a mailbox."""
        return (type(self),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact as the bus took it in: numbered, with its cause and its time."""

    seq: int
    cause: int | None
    at: float
    """Monotonic seconds: deadlines are counted in these."""
    wall: float
    """Unix time, for people and for disk."""
    fact: Fact


# ---------------------------------------------------------------- agent


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWaiting(Fact):
    """The agent is up and may not begin: another one has this node, or the kubelet's directory is not there yet."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStarted(Fact):
    version: str
    run: str
    boot: str
    simulated: bool = False
    policy: Policy = field(default_factory=Policy)
    """What XIDs mean here."""
    resync: float = 30.0
    """Seconds between scans that nothing asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRestored(Fact):
    """What the state file of an earlier life held; the first fact after AgentStarted."""

    config: Config | None = None
    config_digest: str = ""
    config_text: str = field(default="", repr=False)
    holds: tuple[Hold, ...] = ()
    freed: Mapping[HoldKey, str] = field(default_factory=dict)
    conditions: Mapping[GpuUuid, tuple[Condition, ...]] = field(default_factory=dict)
    relapses: Mapping[GpuUuid, tuple[float, ...]] = field(default_factory=dict)
    pci: Mapping[GpuUuid, PciAddress] = field(default_factory=dict)
    kubelet: SocketIdentity | None = None
    """The kubelet's life that the agent before us saw last: what it showed of pods counts on while that life lasts."""
    problem: str = ""
    """Why the file could not be used; empty if it was read or there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived(Fact):
    name: str
    """HUP, TERM, INT"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStopping(Fact):
    reason: str


# ---------------------------------------------------------------- config


class ConfigOrigin(StrEnum):
    FILE = "file"
    DEFAULT = "default"
    LAST_ACCEPTED = "last_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRead(Fact):
    """A config text was accepted whole."""

    config: Config
    digest: str
    origin: ConfigOrigin = ConfigOrigin.FILE
    path: str = ""
    text: str = field(default="", repr=False)
    """Kept on disk as the last accepted."""
    notes: tuple[str, ...] = ()
    """What people should know of a text that is all right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRejected(Fact):
    """A config text was refused; what is in force stays."""

    digest: str
    path: str
    problems: tuple[ConfigProblem, ...]


# ---------------------------------------------------------------- NVML


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryTaken(Fact):
    inventory: Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryFailed(Fact):
    state: DriverState
    error: str

    @property
    def key(self) -> Key:
        return (InventoryTaken,)  # newer of the two says what is so


@dataclass(frozen=True, slots=True, kw_only=True)
class XidReported(Fact):
    gpu: GpuUuid
    placement: Placement
    xid: int

    @property
    def key(self) -> Key:
        return (XidReported, self.gpu, self.placement, self.xid)


@dataclass(frozen=True, slots=True, kw_only=True)
class EccReported(Fact):
    """A double-bit ECC event without an XID."""

    gpu: GpuUuid
    placement: Placement

    @property
    def key(self) -> Key:
        return (EccReported, self.gpu, self.placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryActionChanged(Fact):
    gpu: GpuUuid
    action: RecoveryAction

    @property
    def key(self) -> Key:
        return (RecoveryActionChanged, self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLost(Fact):
    """Said of one GPU by an event, an uevent or a person; a scan says the same by its failures."""

    gpu: GpuUuid
    error: str

    @property
    def key(self) -> Key:
        return (GpuLost, self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultUnattributed(Fact):
    """An event whose device could not be told: every GPU is checked by a scan, none is marked for it alone."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCleared(Fact):
    """A person says that this GPU is mended."""

    gpu: GpuUuid
    reason: str

    @property
    def key(self) -> Key:
        return (FaultCleared, self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesChanged(Fact):
    """Something about devices or driver moved (uevent, MIG event, driver bind): look again."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Fact):
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost(Fact):
    """The NVML worker died or hung and was left behind."""

    hung: bool
    error: str
    gpu_index: int | None = None
    """At which GPU it hung, if it said so."""


# ---------------------------------------------------------------- kubelet


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletUp(Fact):
    """kubelet.sock accepts connections, so the wipe of the directory is over."""

    identity: SocketIdentity
    pins_cpus: bool = False
    """Whether its CPU manager gives containers CPUs of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletDown(Fact):
    reason: str

    @property
    def key(self) -> Key:
        return (KubeletUp,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSocketGone(Fact):
    resource: ResourceName
    socket: str

    @property
    def key(self) -> Key:
        return (PluginSocketGone, self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginServing(Fact):
    """A server of ours listens on a fresh socket and has answered our own probe."""

    resource: ResourceName
    socket: str

    @property
    def key(self) -> Key:
        return (PluginServing, self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginClosed(Fact):
    resource: ResourceName

    @property
    def key(self) -> Key:
        return (PluginServing, self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRegistered(Fact):
    resource: ResourceName
    socket: str
    identity: SocketIdentity
    """The kubelet's life that accepted it."""

    @property
    def key(self) -> Key:
        return (PluginRegistered, self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpened(Fact):
    resource: ResourceName
    socket: str
    stream: StreamId

    @property
    def key(self) -> Key:
        return (StreamOpened, self.resource, self.stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded(Fact):
    resource: ResourceName
    socket: str
    stream: StreamId

    @property
    def key(self) -> Key:
        return (StreamOpened, self.resource, self.stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised(Fact):
    """A list went out on a stream."""

    resource: ResourceName
    stream: StreamId
    revision: int
    """Revision of the offer that was sent."""
    nudge: int
    healthy: int
    unhealthy: int
    size: int
    """Bytes of the message."""

    @property
    def key(self) -> Key:
        return (Advertised, self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted(Fact):
    """An Allocate was answered. Numbered by the server in the order of the answers."""

    number: int
    resource: ResourceName
    ids: tuple[DeviceId, ...]

    @property
    def key(self) -> Key:
        return (Granted, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Fact):
    resource: ResourceName
    ids: tuple[DeviceId, ...]
    message: str
    faulty: tuple[DeviceId, ...] = ()
    """Ids refused for their own fault, not for the request's."""

    @property
    def key(self) -> Key:
        return (Refused, self.resource)


# ---------------------------------------------------------------- who holds what


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsListed(Fact):
    """podresources List; ``asked_at`` is when the call began (monotonic), for the rules count from there."""

    pods: tuple[PodDevices, ...]
    asked_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsListFailed(Fact):
    """podresources did not answer; holds stay as they are."""

    error: str

    @property
    def key(self) -> Key:
        return (PodsListed,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRead(Fact):
    entries: tuple[CheckpointEntry, ...]
    asked_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed(Fact):
    """The kubelet's checkpoint is missing or cannot be read: a warning, its pods are then known by List alone."""

    error: str
    missing: bool

    @property
    def key(self) -> Key:
        return (CheckpointRead,)


# ---------------------------------------------------------------- time, outcomes, supervision


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed(Fact):
    """The moment that the state asked to be told of."""

    name: str

    @property
    def key(self) -> Key:
        return (DeadlinePassed, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered(Fact):
    """The state file was written; ``revision`` is that of the state it holds."""

    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFailed(Fact):
    handler: str
    lane: str
    error: str
    attempt: int
    retry_in: float
    """Seconds until it is tried again, if no fresh mail comes first."""

    @property
    def key(self) -> Key:
        return (HandlerFailed, self.handler, self.lane)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRecovered(Fact):
    handler: str
    lane: str
    attempts: int

    @property
    def key(self) -> Key:
        return (HandlerFailed, self.handler, self.lane)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFailed(Fact):
    source: str
    error: str
    attempt: int
    retry_in: float

    @property
    def key(self) -> Key:
        return (SourceFailed, self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecovered(Fact):
    source: str
    attempts: int

    @property
    def key(self) -> Key:
        return (SourceFailed, self.source)
