"""One life of the kubelet in memory: its core, its connections and the tasks that read from them.

Everything it runs ends with it. A Register goes on when its caller gave up, as in a real kubelet up to 1.34.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import trio

from reactor.model.errors import Refused, Transient
from reactor.simulate.kubelet import texts
from reactor.simulate.kubelet.core import KubeletCore
from reactor.simulate.kubelet.link import Link, Plug, Weather
from reactor.simulate.kubelet.plugin import Device, KubeletGone, KubeletPanic, PluginError
from reactor.simulate.kubelet.registration import BACKOFF, Client, RegisterError, check
from reactor.simulate.kubelet.watcher import LOOP, Info, Watched


@dataclass(eq=False)
class _Call:
    """One Register under way."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    done: trio.Event = field(default_factory=trio.Event)
    error: RegisterError | Transient | None = field(default_factory=lambda: Transient("the connection ended"))


class Life:
    def __init__(
        self,
        nursery: trio.Nursery,
        core: KubeletCore,
        sockets: Mapping[str, Plug],
        registry: Mapping[str, Plug],
        weather: Weather,
        *,
        over: bool = False,
        on_list: Callable[[str], None] = lambda resource: None,
    ) -> None:
        self.core = core
        self.over = over
        self._on_list = on_list
        self._nursery = nursery
        self._sockets = sockets
        self._registry = registry
        self._watched = Watched()
        self._weather = weather
        self._lock = trio.Lock()  # the sync loop: one pod after another
        self._links: dict[Client, Link] = {}
        self._tasks: set[trio.CancelScope] = set()

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    def end(self) -> None:
        self.over = True
        for link in self.links:
            link.gone = True
            link.end()
        for task in self._tasks:
            task.cancel()

    async def step(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do a step of the sync loop, after those before it. It is dropped if the life ends; a panic ends the life."""
        async with self._lock:
            if self.over:
                return
            try:
                await work()
            except KubeletGone:
                return
            except KubeletPanic:
                self.end()
                raise

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        scope = trio.CancelScope()
        self._tasks.add(scope)
        self._nursery.start_soon(self._run, scope, work)

    async def _run(self, scope: trio.CancelScope, work: Callable[[], Awaitable[None]]) -> None:
        with scope:
            await work()
        self._tasks.discard(scope)

    # ------------------------------------------------------------ the plugin watcher

    def watch_registry(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Begin to look for sockets there. ``changed`` waits until there may be others."""
        self._spawn(lambda: self._watch_registry(changed))

    async def _watch_registry(self, changed: Callable[[], Awaitable[None]]) -> None:
        while True:
            for socket, resource in self._watched.gone(self._registry):
                self.core.registry.removed(resource, socket)
            for socket in self._watched.fresh(self._registry, trio.current_time()):
                self._spawn(partial(self._ask, socket, self._registry[socket]))
            if not self._registry and not self._watched.registered:
                await changed()
            await trio.sleep(LOOP)

    async def _ask(self, socket: str, plug: Plug) -> None:
        """Ask a socket that was found who it is, and take it."""
        await trio.lowlevel.checkpoint()
        notify = plug.notified
        if notify is None or plug.closed or plug.spent:
            self._watched.failed(socket, trio.current_time())
            return
        error = Info("DevicePlugin", plug.resource, "", (texts.SUPPORTED,)).wrong(socket)
        if error is None:
            self._watched.dialled(socket, plug, plug.resource)
            try:
                await self._connect_unless_refused(plug.resource, socket)
            except RegisterError as refusal:
                error = texts.not_registered(str(refusal))
        if error is not None and (socket in self._watched.busy or self.core.traits.version.undoes_failed_plugins):
            self._watched.failed(socket, trio.current_time())
        notify(error)

    # ------------------------------------------------------------ Register

    async def register(self, resource: str, socket: str, deadline: float) -> None:
        """Register as a plugin calls it. Refused or Transient, with the kubelet's text."""
        where = f"registering {resource}"
        if self.over:
            raise Transient(f"{where}: Connection refused")
        call = _Call()
        self._spawn(lambda: self._register(call, resource, socket))
        try:
            with trio.fail_after(deadline):
                await call.done.wait()
        except trio.TooSlowError as exc:
            raise Transient(f"{where}: no answer in time") from exc
        finally:
            if self.core.traits.version.bounds_dial_back:
                call.scope.cancel()
        if call.error is not None:
            final = texts.invalid_resource(resource) == str(call.error)
            raise (Refused if final else Transient)(f"{where}: UNKNOWN: {call.error}") from call.error

    async def _register(self, call: _Call, resource: str, socket: str) -> None:
        try:
            with call.scope:
                check(texts.SUPPORTED, resource)
                await self._connect_unless_refused(resource, socket)
                call.error = None
        except RegisterError as error:
            call.error = error
        finally:
            call.done.set()

    async def _connect_unless_refused(self, resource: str, socket: str) -> None:
        await trio.sleep(self._weather.register_delay)
        if self._weather.refuse_register:
            self._weather.refuse_register -= 1
            raise RegisterError(texts.dial_failed())
        await self._connect(resource, socket)

    async def _connect(self, resource: str, socket: str) -> None:
        """Dial back, ask for the options, then read the list in a task of its own."""
        link = Link(resource, self._weather)
        client = Client(resource, socket, link, link.end)
        registry = self.core.registry
        registry.begin(client)
        self._links[client] = link
        connected = False
        try:
            link.attach(await self._dial(socket))
            registry.connected(client, await link.options())
            connected = True
        except PluginError as error:
            raise RegisterError(texts.options_failed(str(error))) from error
        finally:
            if not connected:
                registry.failed(client)
                link.end()
                del self._links[client]
        self._spawn(lambda: self._read(client, link))

    async def _dial(self, socket: str) -> Plug:
        with trio.move_on_after(self.core.traits.dial_timeout):
            for pause in BACKOFF:
                await trio.sleep(pause)
                plug = self._sockets.get(socket) or self._registry.get(socket)
                if plug is not None and not plug.closed:
                    return plug
        raise RegisterError(texts.dial_failed())

    async def _read(self, client: Client, link: Link) -> None:
        def receive(devices: list[Device]) -> None:
            self.core.receive(client, devices)
            self._on_list(client.resource)

        with suppress(PluginError):  # it ended before the stream began
            await link.watch(receive)
        await trio.sleep(self.core.traits.end_notice)
        del self._links[client]
        self.core.registry.ended(client)
