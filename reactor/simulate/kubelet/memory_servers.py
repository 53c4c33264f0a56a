"""The agent's plugin servers over a kubelet in memory, in the shape of ``reactor.kubelet.servers.PluginServers``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import trio

from reactor.kubelet.desk import Desk
from reactor.model.errors import Transient
from reactor.model.ids import ResourceName
from reactor.model.snapshot import Snapshot
from reactor.simulate.kubelet.link import Plug

_numbers = itertools.count(1)


class Directory(Protocol):
    """The plugin directory, and the kubelet that listens in it."""

    def bind(self, plug: Plug) -> None: ...

    def show(self, plug: Plug) -> None: ...

    def unbind(self, plug: Plug) -> None: ...

    def exists(self, socket: str) -> bool: ...

    async def register(self, resource: str, socket: str, deadline: float = 12.0) -> None: ...


class MemoryServers:
    def __init__(
        self,
        directory: Directory,
        desk: Desk,
        notified: Callable[[ResourceName, str, str | None], None] | None = None,
    ) -> None:
        """``notified``: what the plugin watcher says; None: sockets are not for it to find."""
        self.fail_serve = 0
        """So many calls of ``serve`` to come fail."""
        self._directory = directory
        self._desk = desk
        self._notified = notified
        self._hidden: set[str] = set()
        self._plugs: dict[ResourceName, Plug] = {}

    def sockets(self) -> Mapping[ResourceName, str]:
        return {resource: plug.socket for resource, plug in self._plugs.items() if plug.socket not in self._hidden}

    async def serve(self, resource: ResourceName) -> str:
        """Serve on a fresh socket; a server that the resource had is closed first."""
        await self.close(resource)
        if self.fail_serve:
            self.fail_serve -= 1
            raise Transient(f"serving {resource}: No space left on device")
        plug = Plug(resource, f"gpu-reactor-{resource.rpartition('/')[2]}-{next(_numbers):08x}.sock", self._desk)
        self._plugs[resource] = plug
        if self._notified is None:
            self._directory.bind(plug)
        else:
            plug.notified = partial(self._notified, resource, plug.socket)
            self._hidden.add(plug.socket)
        return plug.socket

    async def offer(self, resource: ResourceName, socket: str) -> None:
        await trio.lowlevel.checkpoint()
        plug = self._plugs.get(resource)
        if plug is not None and plug.socket == socket and socket in self._hidden:
            self._hidden.discard(socket)
            self._directory.show(plug)

    async def close(self, resource: ResourceName) -> None:
        plug = self._plugs.pop(resource, None)
        if plug is not None:
            self._hidden.discard(plug.socket)
            self._directory.unbind(plug)
        await trio.lowlevel.checkpoint()

    async def register(self, resource: ResourceName, socket: str, deadline: float = 12.0) -> None:
        if not self._directory.exists(socket):
            raise Transient(f"asking our own socket {socket} for its options: No such file or directory")
        await self._directory.register(resource, socket, deadline)

    def post(self, snapshot: Snapshot) -> None:
        self._desk.post(snapshot)

    async def settle(self) -> None:
        await trio.lowlevel.checkpoint()

    def drop(self) -> None:
        """The process is gone: its connections end, its socket files stay."""
        for plug in self._plugs.values():
            plug.close()

    async def aclose(self, grace: float) -> None:
        for resource in tuple(self._plugs):
            await self.close(resource)
