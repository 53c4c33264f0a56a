"""The composition root: builds facades, handlers and sources, injects what one needs of another, opens the nurseries.

Read from top to bottom::

    trio.run
    └ the log, and the door to asyncio        outermost: facades outlive their users
      └ servers: probes, admin socket, NVML   end last
        └ work: the bus and its handlers      end within the grace time
          └ sources                           end first, on SIGTERM
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from reactor import __version__, allocate
from reactor import events as e
from reactor.aio import Door, living, open_door
from reactor.bus import Bus, Source
from reactor.bus import Recorder as EventRecorder
from reactor.conditions.classes import policy_from_environment
from reactor.config import Accepted, parse
from reactor.handlers.advertise import Advertise
from reactor.handlers.discover import Discover
from reactor.handlers.register import Register, Servers
from reactor.handlers.remember import Remember, StateFile, recall
from reactor.kubelet.books import list_pods, read_checkpoint
from reactor.kubelet.cpus import pins_cpus
from reactor.kubelet.desk import Desk
from reactor.kubelet.servers import PluginServers
from reactor.lock import Lock, one_agent
from reactor.model.condition import Policy
from reactor.model.config import Config, Setting
from reactor.model.gpu import Inventory
from reactor.model.ids import DeviceId, ResourceName
from reactor.model.kubelet import Registration, StreamId
from reactor.model.settings import Settings
from reactor.model.snapshot import Snapshot
from reactor.nvml import Nvml
from reactor.record.later import Later
from reactor.record.recorder import LogHandler, Recorder
from reactor.record.writer import LogWriter
from reactor.sources.config import ConfigSource
from reactor.sources.health import HealthSource
from reactor.sources.kubelet import KubeletSource
from reactor.sources.podresources import PodResourcesSource
from reactor.sources.signals import SignalSource
from reactor.sources.timer import TimerSource
from reactor.status.loops import Loops
from reactor.status.ring import Ring
from reactor.view import waiting

if TYPE_CHECKING:
    from reactor.status.metrics.metrics import Metrics

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STATUS_AFTER = 0.5
HANDLERS_GRACE = 1.0
"""Seconds that handlers have to end: a write of the state file takes milliseconds, a scan that hangs may never end."""
Publish = Callable[[e.Fact], object]
Hardware = Callable[[Settings], AbstractAsyncContextManager[Nvml]]


async def run(settings: Settings, hardware: Hardware) -> int:
    """Run the agent with its log on stdout until a signal ends it; the exit code."""
    writer = LogWriter(1)
    try:
        return await serve(settings, hardware, sink=writer, dropped=writer.dropped)
    finally:
        writer.close(timeout=1.0)


async def serve(
    settings: Settings,
    hardware: Hardware,
    *,
    sink: Callable[[bytes], None],
    dropped: Callable[[], int] = lambda: 0,
    task_status: trio.TaskStatus[Callable[[], object]] = trio.TASK_STATUS_IGNORED,
) -> int:
    """Run the agent until a signal ends it, or the call that it gives its starter. The exit code: 1 if it ended by
    itself, since only another start helps.

    ``sink`` takes the lines of the event log, from any thread; ``dropped`` says how many of them it has lost.
    """
    ring = Ring()
    run = secrets.token_hex(4)
    log = _log(settings, run, ring, sink, dropped)
    async with (
        log as recorder,
        open_door() as door,
        hardware(settings) as nvml,
        _journal(settings, recorder, lambda fact: door.emit(partial(bus.publish, fact))) as kept,
    ):
        with Later(kept) as later:
            # Not behind Later: a reaction is counted from its event, and the list is out before the log hears of that.
            metrics = _metrics(settings, later, recorder.lost)
            bus = Bus((), recorder=metrics or later, meter=metrics)
            reports = Reports(lambda fact: door.emit(partial(bus.publish, fact)))
            desk = Desk(answer=allocate.answer, prefer=allocate.prefer, reports=reports)
            servers = _servers(settings, door, desk, reports)
            file = StateFile(settings.state_dir)
            post = servers.post if metrics is None else metrics.posting(servers.post)
            advertise = add_handlers(bus, scan=nvml.scan, servers=servers, post=post, save=file.save)
            async with trio.open_nursery() as outer:
                publish = partial(_publish, bus, metrics)
                await outer.start(bus.supervise, SignalSource(publish=publish(SignalSource.name)))
                task_status.started(partial(bus.publish, e.SignalReceived(name="TERM")))
                await outer.start(nvml.run)
                outer.start_soon(later.run)
                loops = Loops(partial(door.call, living), metrics.late if metrics else _unheard)
                outer.start_soon(loops.watch)
                outer.start_soon(_serve_status, settings, bus, advertise, loops, ring)
                if metrics is not None:
                    outer.start_soon(metrics.serve, settings.metrics_listen, bus, lambda: advertise.snapshot)
                lock = await _alone(settings, bus)
                if lock is not None:
                    with lock:
                        _begin(settings, run, bus, file)
                        sources = _sources(settings, bus, door, nvml, servers, publish)
                        await work(bus, sources, settings.grace)
                        await servers.aclose(settings.grace)
                outer.cancel_scope.cancel()
            return 1 if bus.state.stranded else 0


def _servers(settings: Settings, door: Door, desk: Desk, reports: Reports) -> PluginServers:
    return PluginServers(
        door,
        desk,
        directory=settings.sockets,
        kubelet_socket=settings.kubelet_socket,
        notified=reports.notified if settings.registration is Registration.WATCHER else None,
        left={settings.directory, settings.registry} - {settings.sockets},
    )


async def _alone(settings: Settings, bus: Bus) -> Lock | None:
    return await one_agent(
        settings.directory,
        waiting=lambda reason: bus.publish(e.AgentWaiting(reason=reason)),
        wanted=lambda: not bus.state.stopping,
    )


def add_handlers(
    bus: Bus,
    *,
    scan: Callable[[], Awaitable[Inventory]],
    servers: Servers,
    post: Callable[[Snapshot], None],
    save: Callable[[bytes], Awaitable[None]],
) -> Advertise:
    """Every handler there is."""
    advertise = Advertise(post)
    for handler in (Discover(scan), advertise, Register(servers), Remember(save)):
        bus.add(handler)
    return advertise


def _begin(settings: Settings, run: str, bus: Bus, file: StateFile) -> None:
    """The first facts: who starts, and what an earlier life remembered."""
    policy = policy_from_environment(settings.environment)
    started = e.AgentStarted(
        version=__version__,
        run=run,
        boot=_boot_id(),
        simulated=bool(settings.simulate_nvml),
        policy=policy if isinstance(policy, Policy) else Policy(),  # the command line has refused bad ones
        resync=settings.resync,
        registration=settings.registration,
    )
    data, problem = file.read()
    restored = recall(data, partial(reparse, overrides=settings.overrides))
    if restored.problem:
        file.set_aside()
    if problem:
        restored = e.StateRestored(problem=problem)
    bus.publish(restored, bus.publish(started).seq)


def _sources(
    settings: Settings, bus: Bus, door: Door, nvml: Nvml, servers: PluginServers, publish: Callable[[str], Publish]
) -> Sequence[Source]:
    until = bus.until
    return (
        PodResourcesSource(
            partial(servers.after_grants, partial(list_pods, door, settings.pod_resources)),
            partial(servers.after_grants, partial(read_checkpoint, settings.checkpoint)),
            publish=publish(PodResourcesSource.name),
            until=until,
            state=lambda: bus.state,
            wants=waiting,
        ),
        ConfigSource(
            settings.config,
            publish=publish(ConfigSource.name),
            until=until,
            state=lambda: bus.state,
            overrides=settings.overrides,
        ),
        KubeletSource(
            settings.sockets,
            settings.kubelet_socket,
            servers.sockets,
            publish=publish(KubeletSource.name),
            until=until,
            state=lambda: bus.state,
            pins_cpus=partial(pins_cpus, settings.kubelet_root),
        ),
        HealthSource(nvml, publish=publish(HealthSource.name)),
        TimerSource(publish=publish(TimerSource.name), until=until),
    )


async def work(bus: Bus, sources: Sequence[Source], grace: float) -> None:
    """Run until the state says that it is time to stop; then sources end first, handlers within the grace time."""
    async with trio.open_nursery() as work:
        await work.start(bus.run)
        async with trio.open_nursery() as sensing:
            for source in sources:
                sensing.start_soon(bus.supervise, source)
            state = await bus.until(lambda state: state.stopping)
            bus.publish(e.AgentStopping(reason=state.stranded or "asked to by a signal"))
            sensing.cancel_scope.cancel()
        with trio.move_on_after(min(grace, HANDLERS_GRACE)):
            await bus.quiet()
        work.cancel_scope.cancel()


async def _serve_status(settings: Settings, bus: Bus, advertise: Advertise, loops: Loops, ring: Ring) -> None:
    """Probes and admin socket, loaded when the first list is out or nothing came of it: the kubelet waits for that."""
    with trio.move_on_after(STATUS_AFTER):
        await bus.until(lambda state: any(plugin.sent_at is not None for plugin in state.kubelet.plugins.values()))
    from reactor.status.admin import serve_admin
    from reactor.status.probes import serve_probes

    probes = partial(serve_probes, state=lambda: bus.state, loops=loops.ages, publish=bus.publish)
    admin = partial(
        serve_admin,
        state=lambda: bus.state,
        snapshot=lambda: advertise.snapshot,
        publish=bus.publish,
        allow_inject=settings.allow_inject,
        lines=ring,
        tasks=loops.tasks,
        read=lambda text, path: parse(text, path=path, overrides=settings.overrides),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probes, settings.probe_listen)
        nursery.start_soon(admin, settings.admin_socket)


@asynccontextmanager
async def _journal(
    settings: Settings, recorder: Recorder, publish: Callable[[e.Fact], None]
) -> AsyncIterator[EventRecorder]:
    """The recorder, with the journal before it if one is wanted. ``publish`` is called in the journal's thread."""
    if settings.journal is None:
        yield recorder
        return
    from reactor.record.journal import RETRY, Journal

    journal = Journal(
        settings.journal,
        recorder,
        failed=lambda error: publish(e.SourceFailed(source="journal", error=error, attempt=1, retry_in=RETRY)),
        recovered=lambda: publish(e.SourceRecovered(source="journal", attempts=1)),
    )
    try:
        yield journal
    finally:
        journal.close(timeout=1.0)


def _metrics(settings: Settings, recorder: EventRecorder, lost: Callable[[], Mapping[str, int]]) -> Metrics | None:
    """None where nobody asked for them: they take memory, and time to load."""
    if not settings.metrics_listen:
        return None
    from reactor.status.metrics.metrics import Metrics

    return Metrics(recorder, lost)


def _publish(bus: Bus, metrics: Metrics | None, source: str) -> Publish:
    """The bus, for one source."""
    return bus.publish if metrics is None else metrics.hearing(source, bus.publish)


def _unheard(loop: str, seconds: float) -> None:
    """Nobody asks how late the loops are."""


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def reparse(text: str, path: str, overrides: Sequence[Setting] = ()) -> Config | None:
    """The config of an earlier life; None if this version refuses it."""
    read = parse(text.encode(), path=path, overrides=overrides)
    return read.config if isinstance(read, Accepted) else None


@asynccontextmanager
async def _log(
    settings: Settings, run: str, ring: Ring, sink: Callable[[bytes], None], dropped: Callable[[], int]
) -> AsyncIterator[Recorder]:
    """The event log, its newest lines in memory, and what libraries log beside it."""
    token, here = trio.lowlevel.current_trio_token(), threading.get_ident()

    def write(line: bytes) -> None:
        sink(line)
        if threading.get_ident() == here:  # nearly all lines; to wake our own loop costs as much as to write one
            ring.append(line)
        else:
            token.run_sync_soon(ring.append, line)

    recorder = Recorder(write, node=settings.node_name, run=run, dropped=dropped)
    handler = LogHandler(recorder)
    logging.getLogger().addHandler(handler)
    try:
        yield recorder
    finally:
        logging.getLogger().removeHandler(handler)
        recorder.flush()


class Reports:
    """What happens at the desk, as facts. ``emit`` is called in the desk's thread."""

    def __init__(self, emit: Callable[[e.Fact], None]) -> None:
        self._emit = emit

    def stream_opened(self, resource: ResourceName, socket: str, stream: StreamId) -> None:
        self._emit(e.StreamOpened(resource=resource, socket=socket, stream=stream))

    def stream_ended(self, resource: ResourceName, socket: str, stream: StreamId) -> None:
        self._emit(e.StreamEnded(resource=resource, socket=socket, stream=stream))

    def notified(self, resource: ResourceName, socket: str, error: str | None) -> None:
        """What the kubelet's plugin watcher said of a socket."""
        if error is None:
            self._emit(e.PluginRegistered(resource=resource, socket=socket))
        else:
            self._emit(e.PluginRefused(resource=resource, socket=socket, error=error))

    def sent(
        self,
        resource: ResourceName,
        stream: StreamId,
        revision: int,
        nudge: int,
        healthy: int,
        unhealthy: int,
        size: int,
        *,
        standing: bool,
    ) -> None:
        self._emit(
            e.Advertised(
                resource=resource,
                stream=stream,
                revision=revision,
                nudge=nudge,
                healthy=healthy,
                unhealthy=unhealthy,
                size=size,
                standing=standing,
            )
        )

    def granted(self, number: int, resource: ResourceName, ids: tuple[str, ...], took: float) -> None:
        self._emit(e.Granted(number=number, resource=resource, ids=tuple(DeviceId(one) for one in ids), took=took))

    def refused(
        self, resource: ResourceName, ids: tuple[str, ...], message: str, faulty: tuple[str, ...], took: float
    ) -> None:
        self._emit(
            e.Refused(
                resource=resource,
                ids=tuple(DeviceId(one) for one in ids),
                message=message,
                faulty=tuple(DeviceId(one) for one in faulty),
                took=took,
            )
        )
