"""Every line of the event log: the kubelet, allocation, who holds what, the log itself."""

from __future__ import annotations

from reactor.record.line import Level, Line

# ---------------------------------------------------------------- kubelet


class KubeletAppeared(Line, frozen=True, kw_only=True, tag="kubelet.appeared"):
    """The kubelet accepts connections, for the first time or after a restart."""

    life: int
    """Lives of the kubelet seen so far."""


class KubeletVanished(Line, frozen=True, kw_only=True, tag="kubelet.vanished"):
    """The kubelet does not accept connections; pods keep running, nothing can be registered."""

    level: Level = Level.WARNING
    error: str


class PluginSwept(Line, frozen=True, kw_only=True, tag="plugin.swept"):
    """The socket of a resource was removed by someone; it is served anew."""

    level: Level = Level.WARNING
    resource: str
    socket: str


class PluginStranded(Line, frozen=True, kw_only=True, tag="plugin.stranded"):
    """The plugin directory was deleted under the mount through which it is seen: the agent ends, for its next start."""

    level: Level = Level.ERROR
    error: str


class PluginServed(Line, frozen=True, kw_only=True, tag="plugin.served"):
    """A resource has a server that answers on a fresh socket."""

    level: Level = Level.DEBUG
    resource: str
    socket: str


class PluginClosed(Line, frozen=True, kw_only=True, tag="plugin.closed"):
    """A resource is no longer served."""

    resource: str


class PluginOffered(Line, frozen=True, kw_only=True, tag="plugin.offered"):
    """The socket of a resource is where the kubelet's plugin watcher looks; the kubelet is to come."""

    level: Level = Level.DEBUG
    resource: str
    socket: str


class PluginRefused(Line, frozen=True, kw_only=True, tag="plugin.refused"):
    """The kubelet's plugin watcher did not take a resource; it is offered anew, ever more seldom."""

    level: Level = Level.WARNING
    resource: str
    socket: str
    error: str


class PluginRegistered(Line, frozen=True, kw_only=True, tag="plugin.registered"):
    """The kubelet took a resource."""

    resource: str
    socket: str


class StreamOpened(Line, frozen=True, kw_only=True, tag="stream.opened"):
    """The kubelet listens to the list of a resource."""

    resource: str
    stream: int


class StreamClosed(Line, frozen=True, kw_only=True, tag="stream.closed"):
    """A stream to the kubelet ended."""

    resource: str
    stream: int


class DevicesAdvertised(Line, frozen=True, kw_only=True, tag="devices.advertised"):
    """A list went to the kubelet; debug if it shows what was shown before."""

    burst = 16
    resource: str
    healthy: int
    unhealthy: int
    added: int
    removed: int
    turned: int
    """Ids whose health changed, as far as counts tell."""
    revision: int
    bytes: int


# ---------------------------------------------------------------- allocation


class AllocationAnswered(Line, frozen=True, kw_only=True, tag="allocation.answered"):
    """The kubelet was given devices for a container."""

    burst = 32
    resource: str
    ids: tuple[str, ...]
    gpus: tuple[str, ...]
    count: int
    """Ids."""
    grant: int


class AllocationRefused(Line, frozen=True, kw_only=True, tag="allocation.refused"):
    """Devices that the kubelet asked for were refused; its pod fails with this message."""

    level: Level = Level.WARNING
    resource: str
    ids: tuple[str, ...]
    count: int
    error: str
    faulty: int
    """Ids refused for their own fault: unhealthy until the next good scan."""


class HoldBegun(Line, frozen=True, kw_only=True, tag="hold.begun"):
    """Ids are held, by a grant or by the kubelet's books."""

    burst = 16
    resource: str
    ids: tuple[str, ...]
    count: int
    pod: str = ""


class HoldEnded(Line, frozen=True, kw_only=True, tag="hold.ended"):
    """Held ids are free."""

    burst = 16
    resource: str
    ids: tuple[str, ...]
    count: int
    pod: str = ""
    seconds: float
    """The longest of them."""


class HoldSuspended(Line, frozen=True, kw_only=True, tag="hold.suspended"):
    """The kubelet forgot who has these ids, by losing its checkpoint; they stay with their pod until that ends."""

    level: Level = Level.WARNING
    burst = 16
    resource: str
    ids: tuple[str, ...]
    count: int
    pod: str = ""


class PodresourcesFailed(Line, frozen=True, kw_only=True, tag="podresources.failed"):
    """The kubelet does not say which pods hold what; everything held stays held."""

    level: Level = Level.WARNING
    error: str


class PodresourcesAnswered(Line, frozen=True, kw_only=True, tag="podresources.answered"):
    """The kubelet says again which pods hold what."""

    count: int
    """Pods."""


class CheckpointFailed(Line, frozen=True, kw_only=True, tag="checkpoint.failed"):
    """The kubelet's checkpoint is missing or cannot be read."""

    level: Level = Level.WARNING
    missing: bool
    error: str


class CheckpointRead(Line, frozen=True, kw_only=True, tag="checkpoint.read"):
    """The kubelet's checkpoint can be read again."""

    count: int
    """Entries."""


# ---------------------------------------------------------------- the log itself


class LogEmitted(Line, frozen=True, kw_only=True, tag="log.emitted"):
    """A library that the agent uses logged something."""

    subject = ("logger",)
    logger: str
    error: str = ""


class LogCoalesced(Line, frozen=True, kw_only=True, tag="log.coalesced"):
    """So many lines of one event and subject (none named: of all) came in this minute; most are not shown."""

    level: Level = Level.WARNING
    of: str
    """Event name."""
    gpu: str = ""
    resource: str = ""
    handler: str = ""
    lane: str = ""
    source: str = ""
    logger: str = ""
    count: int
    hidden: int
    """Of them not shown since the last summary."""
    first_ts: str


class LogDropped(Line, frozen=True, kw_only=True, tag="log.dropped"):
    """Nobody reads the log fast enough: lines were dropped, debug and info first."""

    level: Level = Level.WARNING
    count: int
    """Since the last such line."""
    total: int
