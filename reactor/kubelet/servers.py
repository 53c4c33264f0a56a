"""The plugin servers, one a resource, as the trio side drives them.

Each serves on a socket with a name never used before (a kubelet from 1.37 on takes the same name for the same plugin),
and answers a probe of our own before anybody is told of it.

For the kubelet's plugin watcher that directory is its plugins_registry. A socket is bound there under a hidden name,
and renamed once it may be found.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import trio

from reactor.aio import Door
from reactor.kubelet import calls
from reactor.kubelet.desk import Desk
from reactor.kubelet.introduction import Introduction, Notified
from reactor.kubelet.listener import Listener
from reactor.kubelet.service import PluginService, until_owed
from reactor.kubelet.stale import HIDDEN, PREFIX, sweep
from reactor.model.errors import Refused, Transient
from reactor.model.ids import ResourceName
from reactor.model.snapshot import Snapshot

T = TypeVar("T")

_LONGEST_PATH = 107
"""Bytes that the kernel takes as the path of a unix socket."""
_BIND = 5.0
_SETTLE = 1.0
_PROBE = 2.0
"""Seconds within which our own socket has to answer."""
_FRESH = 1.0
"""Seconds for which the probe of ``serve`` counts for ``register``: a kubelet that is back waits for one, not two."""


class PluginServers:
    def __init__(
        self,
        door: Door,
        desk: Desk,
        *,
        directory: Path,
        kubelet_socket: Path,
        notified: Notified | None = None,
        left: Iterable[Path] = (),
    ) -> None:
        """``notified``: told what the plugin watcher of the kubelet says, on the asyncio side; None: it finds nothing.

        ``left``: other directories in which an earlier life, started in another way, may have left sockets.
        """
        self._door = door
        self._notified = notified
        self._left = tuple(left)
        self._desk = desk
        # Absolute and free of "..": neither a later chdir nor a link may make us serve elsewhere than we registered.
        self._directory = os.path.abspath(directory)
        self._kubelet = os.path.abspath(kubelet_socket)
        self._listeners: dict[ResourceName, Listener] = {}  # belongs to the asyncio side
        self._sockets: dict[ResourceName, str] = {}
        self._hidden: set[str] = set()
        self._probed: dict[str, float] = {}
        """When each socket that is served answered first."""
        self._swept = False

    def sockets(self) -> Mapping[ResourceName, str]:
        """Socket names that are served now, by resource; files in the directory, unless somebody removed one."""
        return {resource: socket for resource, socket in self._sockets.items() if socket not in self._hidden}

    async def serve(self, resource: ResourceName) -> str:
        """Serve a resource on a fresh socket that has answered our own probe; returns the socket's name.

        A server that the resource had is closed first: the kubelet must see its end before the next one begins.
        """
        socket = socket_name(resource, self._directory, hidden=self._notified is not None)
        if not self._swept:
            await trio.to_thread.run_sync(self._sweep)
            self._swept = True
        await self.close(resource)
        path = self._path(socket, hidden=self._notified is not None)
        try:
            # Not cut short: a half-made listener would belong to nobody.
            with trio.fail_after(_BIND, shield=True):
                await self._door.call(self._listen, resource, socket, path)
        except OSError as exc:
            raise Transient(f"serving {resource} at {path}: {exc.strerror or exc}") from exc
        except trio.TooSlowError as exc:
            raise Transient(f"serving {resource} at {path}: the asyncio side did not answer in {_BIND} s") from exc
        try:
            await self._door.call(calls.probe, path, _PROBE)
        except Transient:
            await self.close(resource)
            raise
        self._sockets[resource] = socket
        if self._notified is not None:
            self._hidden.add(socket)
        self._probed[socket] = trio.current_time()
        return socket

    async def close(self, resource: ResourceName) -> None:
        """End a resource's server with its connections; nothing happens if there is none."""
        socket = self._sockets.pop(resource, "")
        self._probed.pop(socket, None)
        self._hidden.discard(socket)
        await self._door.call(self._stop, resource)

    async def register(self, resource: ResourceName, socket: str, deadline: float = 12.0) -> None:
        """Register a served socket with the kubelet, after a probe of it.

        Never to be called while a stream of this socket is live: up to 1.36 that ends both, or forgets the live one.
        """
        path = self._path(socket)
        if not self._just_answered(socket, path):
            await self._door.call(calls.probe, path, _PROBE)
        await self._door.call(calls.register, self._kubelet, resource, socket, deadline)

    async def offer(self, resource: ResourceName, socket: str) -> None:
        """Let the kubelet's plugin watcher find a served socket. Done twice, it is done once."""
        if socket not in self._hidden:
            return
        path = self._path(socket)
        try:
            await self._door.call(self._show, resource, path)
        except OSError as exc:
            raise Transient(f"offering {resource} to the kubelet at {path}: {exc.strerror or exc}") from exc
        finally:
            self._hidden.discard(socket)  # also if its file was gone: from now on that is seen

    def _path(self, socket: str, *, hidden: bool = False) -> str:
        return os.path.join(self._directory, HIDDEN + socket if hidden else socket)

    def _sweep(self) -> None:
        sweep(self._directory)
        for directory in self._left:
            with suppress(OSError):  # nothing there is needed, and it may be none of this container's
                sweep(os.path.abspath(directory))

    def _just_answered(self, socket: str, path: str) -> bool:
        fresh = trio.current_time() - self._probed.get(socket, -math.inf) < _FRESH
        return fresh and os.path.exists(path)  # a kubelet that starts sweeps the directory

    def post(self, snapshot: Snapshot) -> None:
        """Hand a snapshot over; it is in force once a later ``settle`` has returned."""
        self._door.post(self._desk.post, snapshot)

    async def settle(self) -> None:
        """Return when everything posted is in force, and what happened at the desk before that was reported."""
        await self._door.call(self._settle)

    async def after_grants(self, read: Callable[[], Awaitable[T]]) -> T:
        """What ``read`` finds in the kubelet's books, once every grant that they may show has been reported."""
        found = await read()
        with trio.move_on_after(_SETTLE):
            await self.settle()
        return found

    async def aclose(self, grace: float) -> None:
        """End all servers; those that are not done after ``grace`` seconds are left to the end of the door."""
        with trio.move_on_after(grace, shield=True):
            async with trio.open_nursery() as nursery:
                for resource in tuple(self._listeners):
                    nursery.start_soon(self.close, resource)

    async def _settle(self) -> None:
        await until_owed()
        self._desk.settle()

    async def _listen(self, resource: ResourceName, socket: str, path: str) -> None:
        service = PluginService(self._desk, resource, socket)
        if self._notified is None:
            listener = Listener(service, path)
        else:
            introduction = Introduction(resource, socket, self._notified, lambda: service.spent)
            listener = Listener(service, path, introduction)
        await listener.start()
        self._listeners[resource] = listener

    async def _show(self, resource: ResourceName, path: str) -> None:
        if (listener := self._listeners.get(resource)) is not None:
            await listener.rename(path)

    async def _stop(self, resource: ResourceName) -> None:
        listener = self._listeners.pop(resource, None)
        if listener is not None:
            await listener.stop()


def socket_name(resource: ResourceName, directory: str, *, hidden: bool = False) -> str:
    """A fresh name, cut so that the whole path fits into what the kernel takes, also while it is hidden."""
    tail = f"-{secrets.token_hex(4)}.sock"
    least = _LONGEST_PATH - len(PREFIX) - len(tail) - 2 - len(HIDDEN) * hidden
    room = least - len(os.fsencode(directory)) + 1
    if room < 1:
        raise Refused(
            f"the plugin directory {directory} is too long: the path of a unix socket has at most {_LONGEST_PATH} "
            f"bytes, which leaves {least} for the directory"
        )
    short = re.sub(r"[^A-Za-z0-9._-]", "_", resource.rpartition("/")[2])
    return f"{PREFIX}{short[:room]}{tail}"
