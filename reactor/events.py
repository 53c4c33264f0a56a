"""Every fact that can be on the bus, in one place: past tense, frozen, each with a key that folds repeats.

Structs, not dataclasses: those of forty facts took a tenth of the time that the agent takes to load.

Sources report what they saw, handlers and servers what they did. The log name of a fact is ``<noun>.<past>``
(``record.py`` decides how it is told).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from reactor.model.condition import Condition, Placement, Policy
from reactor.model.config import Config, ConfigProblem
from reactor.model.gpu import DriverState, Inventory, RecoveryAction
from reactor.model.hold import CheckpointEntry, Hold, HoldKey, PodDevices
from reactor.model.ids import DeviceId, GpuUuid, PciAddress, ResourceName
from reactor.model.kubelet import Registration, SocketIdentity, StreamId

Key = tuple[object, ...]


class Fact(Struct, frozen=True, kw_only=True):
    """Base of all facts. ``synthetic`` marks what a person injected."""

    synthetic: bool = False

    @property
    def key(self) -> Key:
        """Facts of one key fold into the newest in a mailbox."""
        return (type(self),)


class Event(Struct, frozen=True, kw_only=True):
    """A fact as the bus took it in: numbered, with its cause and its time."""

    seq: int
    cause: int | None
    at: float
    """Monotonic seconds: deadlines are counted in these."""
    wall: float
    """Unix time, for people and for disk."""
    fact: Fact


# ---------------------------------------------------------------- agent


class AgentWaiting(Fact, frozen=True, kw_only=True):
    """The agent is up and may not begin: another one has this node, or the kubelet's directory is not there yet."""

    reason: str


class AgentStarted(Fact, frozen=True, kw_only=True):
    version: str
    run: str
    boot: str
    simulated: bool = False
    policy: Policy = field(default_factory=Policy)
    """What XIDs mean here."""
    resync: float = 30.0
    """Seconds between scans that nothing asked for."""
    registration: Registration = Registration.SOCKET


class StateRestored(Fact, frozen=True, kw_only=True):
    """What the state file of an earlier life held; the first fact after AgentStarted."""

    config: Config | None = None
    config_digest: str = ""
    config_text: str = ""
    boot: str = ""
    """Boot id of that life; empty where its file does not say."""
    holds: tuple[Hold, ...] = ()
    freed: Mapping[HoldKey, str] = field(default_factory=dict)
    conditions: Mapping[GpuUuid, tuple[Condition, ...]] = field(default_factory=dict)
    relapses: Mapping[GpuUuid, tuple[float, ...]] = field(default_factory=dict)
    pci: Mapping[GpuUuid, PciAddress] = field(default_factory=dict)
    kubelet: SocketIdentity | None = None
    """The kubelet's life that the agent before us saw last: what it showed of pods counts on while that life lasts."""
    problem: str = ""
    """Why the file could not be used; empty if it was read or there was none."""


class SignalReceived(Fact, frozen=True, kw_only=True):
    name: str
    """HUP, TERM, INT"""


class AgentStopping(Fact, frozen=True, kw_only=True):
    reason: str


# ---------------------------------------------------------------- config


class ConfigOrigin(StrEnum):
    FILE = "file"
    DEFAULT = "default"
    LAST_ACCEPTED = "last_accepted"


class ConfigRead(Fact, frozen=True, kw_only=True):
    """A config text was accepted whole."""

    config: Config
    digest: str
    origin: ConfigOrigin = ConfigOrigin.FILE
    path: str = ""
    text: str = ""
    """Kept on disk as the last accepted."""
    notes: tuple[str, ...] = ()
    """What people should know of a text that is all right."""


class ConfigRejected(Fact, frozen=True, kw_only=True):
    """A config text was refused; what is in force stays."""

    digest: str
    path: str
    problems: tuple[ConfigProblem, ...]
    asked: bool = False
    """A person asked for another reading (SIGHUP), and is told once more what is known."""


# ---------------------------------------------------------------- NVML


class InventoryTaken(Fact, frozen=True, kw_only=True):
    inventory: Inventory


class InventoryFailed(Fact, frozen=True, kw_only=True):
    state: DriverState
    error: str

    @property
    def key(self) -> Key:
        return (InventoryTaken,)  # newer of the two says what is so


class XidReported(Fact, frozen=True, kw_only=True):
    gpu: GpuUuid
    placement: Placement
    xid: int

    @property
    def key(self) -> Key:
        return (XidReported, self.gpu, self.placement, self.xid)


class EccReported(Fact, frozen=True, kw_only=True):
    """A double-bit ECC event without an XID."""

    gpu: GpuUuid
    placement: Placement

    @property
    def key(self) -> Key:
        return (EccReported, self.gpu, self.placement)


class RecoveryActionChanged(Fact, frozen=True, kw_only=True):
    gpu: GpuUuid
    action: RecoveryAction

    @property
    def key(self) -> Key:
        return (RecoveryActionChanged, self.gpu)


class GpuLost(Fact, frozen=True, kw_only=True):
    """Said of one GPU by an event, an uevent or a person; a scan says the same by its failures."""

    gpu: GpuUuid
    error: str

    @property
    def key(self) -> Key:
        return (GpuLost, self.gpu)


class FaultUnattributed(Fact, frozen=True, kw_only=True):
    """An event whose device could not be told: every GPU is checked by a scan, none is marked for it alone."""

    what: str


class FaultCleared(Fact, frozen=True, kw_only=True):
    """A person says that this GPU is mended."""

    gpu: GpuUuid
    reason: str

    @property
    def key(self) -> Key:
        return (FaultCleared, self.gpu)


class DevicesChanged(Fact, frozen=True, kw_only=True):
    """Something about devices or driver moved (uevent, MIG event, driver bind): look again."""

    what: str
    error: str = ""
    """Of the event watch, where that went wrong and may have missed something."""


class WorkerStarted(Fact, frozen=True, kw_only=True):
    pid: int


class WorkerLost(Fact, frozen=True, kw_only=True):
    """The NVML worker died or hung and was left behind."""

    hung: bool
    error: str
    gpu_index: int | None = None
    """At which GPU it hung, if it said so."""


# ---------------------------------------------------------------- kubelet


class KubeletUp(Fact, frozen=True, kw_only=True):
    """kubelet.sock accepts connections, so the wipe of the directory is over."""

    identity: SocketIdentity
    pins_cpus: bool = False
    """Whether its CPU manager gives containers CPUs of their own."""


class KubeletDown(Fact, frozen=True, kw_only=True):
    reason: str

    @property
    def key(self) -> Key:
        return (KubeletUp,)


class PluginSocketGone(Fact, frozen=True, kw_only=True):
    resource: ResourceName
    socket: str

    @property
    def key(self) -> Key:
        return (PluginSocketGone, self.resource)


class PluginDirectoryGone(Fact, frozen=True, kw_only=True):
    """It was deleted under the mount through which we see it, and we shall never see the one that takes its place."""

    directory: str

    @property
    def error(self) -> str:
        return f"{self.directory} was deleted under its mount"


class PluginServing(Fact, frozen=True, kw_only=True):
    """A server of ours listens on a fresh socket and has answered our own probe."""

    resource: ResourceName
    socket: str

    @property
    def key(self) -> Key:
        return (PluginServing, self.resource)


class PluginClosed(Fact, frozen=True, kw_only=True):
    resource: ResourceName

    @property
    def key(self) -> Key:
        return (PluginServing, self.resource)


class PluginOffered(Fact, frozen=True, kw_only=True):
    """The socket has a name under which the kubelet's plugin watcher finds it."""

    resource: ResourceName
    socket: str

    @property
    def key(self) -> Key:
        return (PluginOffered, self.resource)


class PluginRegistered(Fact, frozen=True, kw_only=True):
    resource: ResourceName
    socket: str
    identity: SocketIdentity | None = None
    """The kubelet's life that accepted it; None: its plugin watcher said so, and does not say which life it is."""

    @property
    def key(self) -> Key:
        return (PluginRegistered, self.resource)


class PluginRefused(Fact, frozen=True, kw_only=True):
    """The kubelet's plugin watcher found the socket and did not take it. Often it does not try that one again."""

    resource: ResourceName
    socket: str
    error: str

    @property
    def key(self) -> Key:
        return (PluginRegistered, self.resource)


class StreamOpened(Fact, frozen=True, kw_only=True):
    resource: ResourceName
    socket: str
    stream: StreamId

    @property
    def key(self) -> Key:
        return (StreamOpened, self.resource, self.stream)


class StreamEnded(Fact, frozen=True, kw_only=True):
    resource: ResourceName
    socket: str
    stream: StreamId

    @property
    def key(self) -> Key:
        return (StreamOpened, self.resource, self.stream)


class Advertised(Fact, frozen=True, kw_only=True):
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
    standing: bool = False
    """The kubelet has this very list from before: nothing went out, only what Allocate says of an id has changed."""

    @property
    def key(self) -> Key:
        return (Advertised, self.resource)


class Granted(Fact, frozen=True, kw_only=True):
    """An Allocate was answered. Numbered by the server in the order of the answers."""

    number: int
    resource: ResourceName
    ids: tuple[DeviceId, ...]
    took: float = 0.0
    """Seconds from the call to its answer being on its way."""

    @property
    def key(self) -> Key:
        return (Granted, self.number)


class Refused(Fact, frozen=True, kw_only=True):
    resource: ResourceName
    ids: tuple[DeviceId, ...]
    message: str
    faulty: tuple[DeviceId, ...] = ()
    """Ids refused for their own fault, not for the request's."""
    took: float = 0.0

    @property
    def key(self) -> Key:
        return (Refused, self.resource)


# ---------------------------------------------------------------- who holds what


class PodsListed(Fact, frozen=True, kw_only=True):
    """podresources List; ``asked_at`` is when the call began (monotonic), for the rules count from there."""

    pods: tuple[PodDevices, ...]
    asked_at: float


class PodsListFailed(Fact, frozen=True, kw_only=True):
    """podresources did not answer; holds stay as they are."""

    error: str

    @property
    def key(self) -> Key:
        return (PodsListed,)


class CheckpointRead(Fact, frozen=True, kw_only=True):
    entries: tuple[CheckpointEntry, ...]
    resources: frozenset[ResourceName] = frozenset()
    """Those that the kubelet knows by it, whether or not anybody has an id of them."""
    asked_at: float


class CheckpointFailed(Fact, frozen=True, kw_only=True):
    """The kubelet's checkpoint is missing or cannot be read: a warning, its pods are then known by List alone."""

    error: str
    missing: bool

    @property
    def key(self) -> Key:
        return (CheckpointRead,)


# ---------------------------------------------------------------- time, outcomes, supervision


class DeadlinePassed(Fact, frozen=True, kw_only=True):
    """The moment that the state asked to be told of."""

    name: str

    @property
    def key(self) -> Key:
        return (DeadlinePassed, self.name)


class Remembered(Fact, frozen=True, kw_only=True):
    """The state file was written; ``revision`` is that of the state it holds."""

    revision: int


class HandlerFailed(Fact, frozen=True, kw_only=True):
    handler: str
    lane: str
    error: str
    attempt: int
    retry_in: float
    """Seconds until it is tried again, if no fresh mail comes first."""

    @property
    def key(self) -> Key:
        return (HandlerFailed, self.handler, self.lane)


class HandlerRecovered(Fact, frozen=True, kw_only=True):
    handler: str
    lane: str
    attempts: int

    @property
    def key(self) -> Key:
        return (HandlerFailed, self.handler, self.lane)


class SourceFailed(Fact, frozen=True, kw_only=True):
    source: str
    error: str
    attempt: int
    retry_in: float

    @property
    def key(self) -> Key:
        return (SourceFailed, self.source)


class SourceRecovered(Fact, frozen=True, kw_only=True):
    source: str
    attempts: int

    @property
    def key(self) -> Key:
        return (SourceFailed, self.source)
