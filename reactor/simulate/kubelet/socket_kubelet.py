"""A kubelet on real unix sockets: asyncio side. ``grpc.py`` is its face to trio.

The directory tree is a kubelet root: ``device-plugins/`` with kubelet.sock, the plugins' sockets and the checkpoint,
``plugins_registry/`` with sockets for the plugin watcher to find, and ``pod-resources/kubelet.sock``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from google.protobuf.message import DecodeError

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.simulate.kubelet import directory, services, texts
from reactor.simulate.kubelet.checkpoint import Books
from reactor.simulate.kubelet.core import KubeletCore, Traits
from reactor.simulate.kubelet.plugin import KubeletGone, KubeletPanic, PluginError
from reactor.simulate.kubelet.podresources import RateLimit
from reactor.simulate.kubelet.pods import ApiServer, Pod
from reactor.simulate.kubelet.registration import Client, RegisterError, check
from reactor.simulate.kubelet.socket_link import Break, SocketLink, SocketWeather
from reactor.simulate.kubelet.socket_watcher import SocketWatcher
from reactor.simulate.kubelet.wire import devices_of

Seen = Callable[[str, dict[str, object]], None]
"""Told of what happens: a name and its fields."""


def _unseen(name: str, fields: dict[str, object]) -> None:
    """Nobody looks."""


class SocketKubelet:
    def __init__(self, root: Path, traits: Traits, seen: Seen = _unseen) -> None:
        self.traits = traits
        self.api = ApiServer()
        self.weather = SocketWeather()
        self.panicked: str | None = None
        self.directory = root / "device-plugins"
        self.registry = root / "plugins_registry"
        self._pod_resources = root / "pod-resources" / directory.SOCKET
        self._seen = seen
        self._lock = asyncio.Lock()
        self._servers: list[services.KillableServer] = []
        self._mute: asyncio.Server | None = None
        self._links: dict[Client, SocketLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._node: dict[str, tuple[int, int]] = {}
        self.up = False
        self.core = KubeletCore(traits, self.api, time.monotonic)

    # ------------------------------------------------------------ lives

    async def start(self, *, api_silent: bool = False, mute: bool = False) -> None:
        """Read the checkpoint, wipe, listen, serve; then hear the API server, unless that is silent.

        ``mute``: kubelet.sock accepts connections but says nothing on them.
        """
        if self.up:
            raise RuntimeError("the kubelet runs already")
        books = directory.read_books(self.directory) if self.directory.exists() else None
        for path in (self.directory, self._pod_resources.parent):
            path.mkdir(parents=True, exist_ok=True, mode=0o750)
        self.registry.mkdir(exist_ok=True, mode=0o755)
        self.core = KubeletCore(self.traits, self.api, time.monotonic, books=books, write=self._write)
        self.core.node = self._node
        directory.wipe(self.directory, self.traits.version)
        self.up = True
        sock = directory.listen(self.directory / directory.SOCKET)
        if mute:
            self._mute = await services.serve_mute(sock)
        else:
            registration = services.KillableServer([services.Registration(self._register)], sock)
            self._servers.append(registration)
            await registration.listen()
        limit = RateLimit(time.monotonic)
        pods = [service(self.core, limit) for service in (services.PodResources, services.OldPodResources)]
        lister = services.KillableServer(pods, directory.listen(self._pod_resources))
        self._servers.append(lister)
        await lister.listen()
        watcher = SocketWatcher(
            self.registry,
            connect=self._found,
            removed=self.core.registry.removed,
            spawn=self._spawn,
            undoes=self.traits.version.undoes_failed_plugins,
        )
        self._spawn(watcher.run())
        self._seen("started", {"version": str(self.traits.version)})
        if api_silent:
            self.api.answering = False
        else:
            await self.api_answers()

    async def api_answers(self) -> None:
        self.api.answering = True
        if self.up and not self.core.ready:
            await self._step(self.core.hear)

    async def kill(self) -> None:
        """End as by SIGKILL: connections are cut, files stay."""
        self.up = False
        for link in self._links.values():
            link.gone = True
            link.end()
        for server in self._servers:
            await server.kill()
        if self._mute is not None:
            self._mute.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._servers, self._mute, self._links, self._tasks = [], None, {}, set()
        self._seen("ended", {})

    async def stop(self) -> None:
        """An end that unlinks kubelet.sock, as its device manager can. Real kubelets leave it, also at SIGTERM."""
        await self.kill()
        for path in (self.directory / directory.SOCKET, self._pod_resources):
            path.unlink(missing_ok=True)

    def _write(self, books: Books) -> None:
        directory.write_books(self.directory, books)

    async def _step(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do a step of the sync loop; it is dropped if this life ends, and a panic ends this life."""
        core = self.core
        async with self._lock:
            if core is not self.core or not self.up:
                return
            try:
                await work()
            except KubeletGone:
                return
            except KubeletPanic as panic:
                self.panicked = self.panicked or str(panic)
                self._seen("panicked", {"error": str(panic)})
                await self.kill()
                raise

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        """A failed Register is its caller's to tell, who may be gone; anything else is a bug that asyncio logs."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RegisterError | KubeletGone):
            raise error

    # ------------------------------------------------------------ Register

    async def _register(self, version: str, resource: str, endpoint: str, left: float | None) -> None:
        await self._pass_weather()
        check(version, resource)
        path = directory.joined(self.directory, endpoint)
        bounded = self.traits.version.bounds_dial_back
        connecting = self._spawn(self._connect(resource, path, left if bounded else None))
        if bounded:
            await connecting
        else:
            await asyncio.shield(connecting)

    async def _found(self, resource: str, path: str) -> None:
        """The plugin watcher has a new plugin."""
        await self._pass_weather()
        await self._connect(resource, path, None)

    async def _pass_weather(self) -> None:
        await asyncio.sleep(self.weather.register_delay)
        if self.weather.refuse_register:
            self.weather.refuse_register -= 1
            raise RegisterError(texts.dial_failed())

    async def _connect(self, resource: str, path: str, left: float | None) -> None:
        link = SocketLink(resource, path, self.weather)
        client = Client(resource, path, link, link.end)
        registry = self.core.registry
        registry.begin(client)
        self._links[client] = link
        connected = False
        try:
            await link.dial(self.traits.dial_timeout)
            registry.connected(client, await link.options(left))
            connected = True
        except PluginError as error:
            raise RegisterError(texts.options_failed(str(error))) from error
        finally:
            if not connected:
                registry.failed(client)
                link.end()
                self._links.pop(client, None)
        self._seen("registered", {"resource": resource, "socket": os.path.basename(path)})
        self._spawn(self._read(client, link))

    async def _read(self, client: Client, link: SocketLink) -> None:
        core = self.core

        def receive(data: bytes) -> None:
            at = time.monotonic_ns()
            try:
                devices = devices_of(pb.ListAndWatchResponse.FromString(data))
            except DecodeError as error:
                raise PluginError(texts.rpc_error("Internal", str(error))) from error
            core.receive(client, devices)
            healthy = sum(each.healthy for each in devices)
            fields = {"resource": client.resource, "at": at, "healthy": healthy, "unhealthy": len(devices) - healthy}
            self._seen("listed", {**fields, "bytes": len(data)})

        await link.watch(receive)
        if link.gone:
            return
        await asyncio.sleep(self.traits.end_notice)
        self._links.pop(client, None)
        core.registry.ended(client)
        self._seen("stream.ended", {"resource": client.resource})

    def break_stream(self, resource: str, how: Break) -> None:
        for link in tuple(self._links.values()):
            if link.resource == resource:
                link.break_by(how)

    def streams(self, resource: str) -> int:
        return sum(1 for each in self._links.values() if each.resource == resource and each.streaming)

    # ------------------------------------------------------------ pods

    async def run_pod(self, pod: Pod) -> None:
        if self.up and self.api.answering and self.core.ready:
            await self._step(lambda: self.core.add(pod))

    def delete_pod(self, name: str, namespace: str) -> None:
        pod = self.api.delete(name, namespace)
        if pod is not None and self.api.answering:
            self.core.forget(pod)

    async def start_pod(self, name: str) -> None:
        """Try once more to start a pod that waits for it."""
        await self._step(lambda: self.core.start(self.api.find(name)))

    async def restart_container(self, name: str, container: str) -> None:
        """A container ended and starts again in place; it waits if PreStart fails."""
        pod = self.api.find(name)
        (found,) = (each for each in pod.all_containers() if each.name == container)
        await self._step(lambda: self.core.restart_container(pod, found))
