"""Every line of the event log: agent, config, driver, GPUs, faults. ``served`` has the kubelet's side.

The first line of a docstring is the meaning that docs/events.md shows. Fields may be added at any time; names, level
and fields that are here stay until ``v`` changes (``debug`` lines and ``msg`` excepted).
"""

from __future__ import annotations

import msgspec

from reactor.record.line import Level, Line

# ---------------------------------------------------------------- agent


class AgentDelayed(Line, frozen=True, kw_only=True, tag="agent.delayed"):
    """The agent may not begin yet: another one has this node, or the kubelet's directory is not there."""

    level: Level = Level.WARNING
    reason: str


class AgentStarted(Line, frozen=True, kw_only=True, tag="agent.started"):
    """The agent runs."""

    version: str
    boot: str
    simulated: bool
    """NVML is simulated: there is no real GPU behind anything that follows."""


class AgentSettled(Line, frozen=True, kw_only=True, tag="agent.settled"):
    """All that is planned is registered with the kubelet and listed."""

    count: int
    """Resources."""


class AgentSignalled(Line, frozen=True, kw_only=True, tag="agent.signalled"):
    """A signal arrived: HUP reads config and devices again, TERM and INT stop the agent."""

    name: str


class AgentStopped(Line, frozen=True, kw_only=True, tag="agent.stopped"):
    """The agent ends; pods keep what they have."""

    reason: str


class StateRestored(Line, frozen=True, kw_only=True, tag="state.restored"):
    """What an earlier life left on disk is in force again; a warning if the file could not be used."""

    holds: int
    conditions: int
    error: str = ""


class StateRemembered(Line, frozen=True, kw_only=True, tag="state.remembered"):
    """The state file was written."""

    level: Level = Level.DEBUG
    revision: int


# ---------------------------------------------------------------- config


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key that differs; a side that has no such key is empty."""

    path: str
    before: str
    after: str
    source: str = ""
    """Who says so now: default, file, or variable or flag with its name."""


class ConfigFault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong in a config text. Lines and columns count from 1, 0 is the text as a whole."""

    line: int
    column: int
    path: str
    text: str


class ConfigRead(Line, frozen=True, kw_only=True, tag="config.read"):
    """A config text was accepted whole."""

    digest: str
    origin: str
    """file, default or last_accepted"""
    path: str


class ConfigApplied(Line, frozen=True, kw_only=True, tag="config.applied"):
    """The config in force changed; the difference by key."""

    digest: str
    changes: tuple[ConfigChange, ...]
    count: int


class ConfigRejected(Line, frozen=True, kw_only=True, tag="config.rejected"):
    """A config text was refused; what is in force stays."""

    level: Level = Level.WARNING
    path: str
    digest: str
    problems: tuple[ConfigFault, ...]
    count: int


class PlannedShare(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a plan: over how many GPUs, how many ids."""

    resource: str
    gpus: int
    devices: int


class PlanMade(Line, frozen=True, kw_only=True, tag="plan.made"):
    """What the config asks of these GPUs changed; a warning if a resource had to be left out for its size."""

    resources: tuple[PlannedShare, ...]
    count: int
    """Resources."""
    unlisted: int
    """GPUs that no resource lists."""
    oversize: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


# ---------------------------------------------------------------- driver and NVML


class DriverFound(Line, frozen=True, kw_only=True, tag="driver.found"):
    """NVML answers."""

    driver: str
    """Version."""
    generation: int


class DriverLost(Line, frozen=True, kw_only=True, tag="driver.lost"):
    """NVML no longer answers."""

    level: Level = Level.WARNING
    state: str
    error: str


class DriverMismatched(Line, frozen=True, kw_only=True, tag="driver.mismatched"):
    """Driver library and driver module are of different versions; no GPU can be used until they agree."""

    level: Level = Level.ERROR
    error: str


class InventoryTaken(Line, frozen=True, kw_only=True, tag="inventory.taken"):
    """A scan showed other GPUs than the one before; the difference only."""

    gpus_added: tuple[str, ...]
    gpus_removed: tuple[str, ...]
    gpus_changed: tuple[str, ...]
    count: int
    """GPUs that answered."""


class InventoryFailed(Line, frozen=True, kw_only=True, tag="inventory.failed"):
    """GPUs cannot be scanned; told when it begins and when its cause changes."""

    level: Level = Level.WARNING
    state: str
    error: str


class DevicesChanged(Line, frozen=True, kw_only=True, tag="devices.changed"):
    """Something about devices or driver moved: they are looked at again."""

    level: Level = Level.DEBUG
    what: str


class WorkerStarted(Line, frozen=True, kw_only=True, tag="worker.started"):
    """The process that talks to NVML runs."""

    pid: int


class WorkerLost(Line, frozen=True, kw_only=True, tag="worker.lost"):
    """The process that talks to NVML died or hung; another takes its place."""

    level: Level = Level.WARNING
    hung: bool
    error: str
    index: int | None = None
    """At which GPU it hung, if it said so."""


# ---------------------------------------------------------------- GPUs


class GpuAdded(Line, frozen=True, kw_only=True, tag="gpu.added"):
    """A GPU is here that was not."""

    gpu: str
    pci: str
    index: int
    product: str
    memory: int | None = None


class GpuRemoved(Line, frozen=True, kw_only=True, tag="gpu.removed"):
    """A GPU is gone."""

    level: Level = Level.WARNING
    gpu: str
    pci: str


class GpuLost(Line, frozen=True, kw_only=True, tag="gpu.lost"):
    """A GPU cannot be reached; all its ids are unhealthy until it answers again."""

    level: Level = Level.ERROR
    gpu: str
    pci: str = ""
    fault: str
    reason: str
    error: str
    needs_person: bool = False


class GpuCondemned(Line, frozen=True, kw_only=True, tag="gpu.condemned"):
    """A GPU is unhealthy for a new reason."""

    level: Level = Level.ERROR
    gpu: str
    pci: str = ""
    fault: str
    """What lifts it: reset, restart, hardware, unknown, unreachable."""
    reason: str
    error: str
    """The evidence."""
    xid: int | None = None
    gi: int | None = None
    ci: int | None = None
    needs_person: bool = False
    """It came back too often: only a person lifts it."""


class GpuRecovered(Line, frozen=True, kw_only=True, tag="gpu.recovered"):
    """A reason for which a GPU was unhealthy no longer holds."""

    gpu: str
    pci: str = ""
    reasons: tuple[str, ...]
    remaining: int
    """Reasons that still hold; 0: the GPU is healthy."""
    seconds: float
    """How long it lasted."""


class GpuUnmonitored(Line, frozen=True, kw_only=True, tag="gpu.unmonitored"):
    """Faults of this GPU cannot be watched; only scans show them."""

    level: Level = Level.WARNING
    gpu: str
    pci: str


class XidReported(Line, frozen=True, kw_only=True, tag="xid.reported"):
    """The driver reported an XID, and what was decided on it."""

    gpu: str
    pci: str
    index: int | None = None
    xid: int
    xid_class: str = msgspec.field(name="class")
    """application, ignore, reset, restart, hardware, unknown"""
    gi: int | None = None
    ci: int | None = None
    decision: str
    """recorded: health unchanged; condemned: unhealthy from now; counted: it was unhealthy for this already"""
    devices_affected: int
    """Ids that are listed for this GPU, if it is unhealthy for this."""


class XidCoalesced(Line, frozen=True, kw_only=True, tag="xid.coalesced"):
    """So many XIDs of one GPU (none named: of all) were reported in this minute; most are not shown."""

    level: Level = Level.WARNING
    gpu: str = ""
    count: int
    hidden: int
    """Of them not shown since the last summary."""
    first_ts: str


class EccReported(Line, frozen=True, kw_only=True, tag="ecc.reported"):
    """A double-bit ECC error came without an XID."""

    level: Level = Level.WARNING
    gpu: str
    pci: str
    decision: str
    devices_affected: int


class RecoveryChanged(Line, frozen=True, kw_only=True, tag="recovery.changed"):
    """The driver asks for another recovery action for a GPU."""

    gpu: str
    action: str


class FaultUnattributed(Line, frozen=True, kw_only=True, tag="fault.unattributed"):
    """A fault whose GPU could not be told; every GPU is looked at, none is marked for it alone."""

    level: Level = Level.WARNING
    what: str


class FaultAcknowledged(Line, frozen=True, kw_only=True, tag="fault.acknowledged"):
    """A person said that a GPU is mended."""

    gpu: str
    reason: str


# ---------------------------------------------------------------- the agent's own trouble


class FaultBegun(Line, frozen=True, kw_only=True, tag="fault.begun"):
    """Something of the agent itself does not work."""

    level: Level = Level.WARNING
    name: str
    error: str


class FaultEnded(Line, frozen=True, kw_only=True, tag="fault.ended"):
    """It works again."""

    name: str
    seconds: float


class HandlerFailed(Line, frozen=True, kw_only=True, tag="handler.failed"):
    """A handler failed and will try again; told at the first failure and at each doubling of attempts."""

    level: Level = Level.WARNING
    subject = ("handler", "lane")
    handler: str
    lane: str
    error: str
    attempt: int
    retry_s: float


class HandlerRecovered(Line, frozen=True, kw_only=True, tag="handler.recovered"):
    """A handler works again."""

    subject = ("handler", "lane")
    handler: str
    lane: str
    attempt: int
    seconds: float | None = None
    """How long it did not."""


class SourceFailed(Line, frozen=True, kw_only=True, tag="source.failed"):
    """A source failed and will be started again; told at the first failure and at each doubling of attempts."""

    level: Level = Level.WARNING
    source: str
    error: str
    attempt: int
    retry_s: float


class SourceRecovered(Line, frozen=True, kw_only=True, tag="source.recovered"):
    """A source works again."""

    source: str
    attempt: int
    seconds: float | None = None


class DeadlinePassed(Line, frozen=True, kw_only=True, tag="deadline.passed"):
    """The moment came that the state had asked to be told of."""

    level: Level = Level.DEBUG
    name: str
