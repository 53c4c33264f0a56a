"""Plugin sockets in memory: a ``Plug`` is a served socket of the agent, a ``Link`` one connection of the kubelet to it.

The plugin's end of a link is the agent's own transport-free desk. Ending a link is synchronous: the desk hears of it
at once, as it would from a connection that was reset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from reactor.kubelet.desk import Desk, Stream
from reactor.kubelet.encode import ListEncoder
from reactor.model.ids import ResourceName
from reactor.model.kubelet import Answer, Refusal
from reactor.model.snapshot import Listed, Offer
from reactor.simulate.kubelet import texts
from reactor.simulate.kubelet.plugin import (
    MESSAGE_LIMIT,
    ContainerAnswer,
    Device,
    DeviceNode,
    KubeletGone,
    Mount,
    Options,
    PluginError,
)


@dataclass(eq=False)
class Plug:
    """One served socket. It may live on although its file was swept away."""

    resource: ResourceName
    socket: str
    desk: Desk
    encoder: ListEncoder = field(default_factory=ListEncoder)
    links: set[Link] = field(default_factory=set)
    notified: Callable[[str | None], None] | None = None
    """What a plugin watcher is to tell: why it did not take this one, None: it did. None: it asks in vain."""
    spent: bool = False
    """A stream of it has ended."""
    closed: bool = False
    """Nobody listens: its file, if it is still there, refuses connections."""

    def close(self) -> None:
        self.closed = True
        for link in tuple(self.links):
            link.end()


class Hold:
    """Keeps Allocate calls from getting on, until released."""

    def __init__(self, *, answered: bool) -> None:
        self.answered = answered
        """Held after the plugin gave its answer, rather than before it is asked."""
        self.arrived = trio.Event()
        self._released = trio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.arrived.set()
        await self._released.wait()


@dataclass
class Weather:
    """What goes wrong between the kubelet and its plugins; set and unset at any time."""

    register_delay: float = 0.0
    refuse_register: int = 0
    """So many Registers to come are refused."""
    read_delay: float = 0.0
    """Seconds between a list's being sent and the kubelet's reading it."""
    unread: bool = False
    """Nothing is read: the flow-control window is shut, sends wait."""
    hold: Hold | None = None
    calm: trio.Event = field(default_factory=trio.Event)
    """Set when ``unread`` ends."""

    def shut(self) -> None:
        self.unread, self.calm = True, trio.Event()

    def open(self) -> None:
        self.unread = False
        self.calm.set()


class Link:
    """One connection; the kubelet calls through it (it is an ``Endpoint``) and reads one stream from it."""

    def __init__(self, resource: str, weather: Weather) -> None:
        self.resource = resource
        self.ended = False
        self.gone = False
        """The kubelet's process ended, so nobody is there to be told of an error."""
        self._plug: Plug | None = None
        self._weather = weather
        self._scope = trio.CancelScope()
        self._calls: set[trio.CancelScope] = set()
        self._feed: Stream | None = None

    def attach(self, plug: Plug) -> None:
        """The dial-back found the socket."""
        self._plug = plug
        plug.links.add(self)

    @property
    def streaming(self) -> bool:
        return self._feed is not None and not self.ended

    def end(self) -> None:
        """Either side closes the connection. Can be repeated."""
        self.ended = True
        if self._plug is not None:
            self._plug.links.discard(self)
        if self._feed is not None:
            self._feed.close()
            if self._plug is not None:
                self._plug.spent = True
        self._scope.cancel()
        for call in self._calls:
            call.cancel()

    # ------------------------------------------------------------ ListAndWatch

    async def watch(self, receive: Callable[[list[Device]], None]) -> None:
        """Read lists until the connection ends; a list too long for the kubelet ends it."""
        plug = self._alive()
        changed = trio.Event()

        def wake() -> None:
            changed.set()

        self._feed = feed = plug.desk.open(plug.resource, plug.socket, wake)
        with self._scope:
            while True:
                offer = feed.take()
                if offer is None:
                    await changed.wait()
                    changed = trio.Event()
                    continue
                while self._weather.unread:
                    await self._weather.calm.wait()
                size = len(plug.encoder.encode(offer).data)
                feed.sent(offer, size)
                await trio.sleep(self._weather.read_delay)
                if size > MESSAGE_LIMIT:
                    break
                receive(devices_of(offer))
        self.end()

    # ------------------------------------------------------------ calls

    async def options(self) -> Options:
        await trio.lowlevel.checkpoint()
        self._alive()
        return Options(preferred=True)

    async def allocate(self, ids: Sequence[str]) -> tuple[ContainerAnswer, ...]:
        plug = await self._held(answered=False)
        outcome = plug.desk.allocate(plug.resource, [list(ids)])
        if isinstance(outcome, Refusal):
            code = "FailedPrecondition" if outcome.faulty else "InvalidArgument"
            raise PluginError(texts.rpc_error(code, outcome.message))
        await self._held(answered=True)
        return tuple(map(_answer, outcome))

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
        plug = self._alive()
        return plug.desk.preferred(plug.resource, available, must_include, size)

    async def pre_start(self, ids: Sequence[str]) -> None:
        self._alive()

    async def _held(self, *, answered: bool) -> Plug:
        hold = self._weather.hold
        if hold is not None and hold.answered is answered and not self.ended:
            with trio.CancelScope() as scope:
                self._calls.add(scope)
                await hold.wait()
            self._calls.discard(scope)
        return self._alive()

    def _alive(self) -> Plug:
        if self.gone:
            raise KubeletGone
        if self.ended or self._plug is None:
            raise PluginError(texts.CONNECTION_CLOSING)
        return self._plug


def devices_of(offer: Offer) -> list[Device]:
    return [_device(each, offer.topology) for group in offer.groups for each in group]


def _device(listed: Listed, topology: bool) -> Device:
    return Device(listed.id, "Healthy" if listed.healthy else "Unhealthy", listed.numa if topology else ())


def _answer(answer: Answer) -> ContainerAnswer:
    return ContainerAnswer(
        envs=answer.envs,
        mounts=tuple(Mount(*each) for each in answer.mounts),
        devices=tuple(DeviceNode(*each) for each in answer.devices),
    )
