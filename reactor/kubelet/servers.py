"""The plugin servers, one a resource, as the trio side drives them.

Each serves on a socket with a name never used before (a kubelet from 1.37 on takes the same name for the same plugin),
and answers a probe of our own before anybody is told of it.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

import trio

from reactor.aio import Door
from reactor.kubelet import calls
from reactor.kubelet.desk import Desk
from reactor.kubelet.listener import Listener
from reactor.kubelet.service import PluginService
from reactor.kubelet.stale import PREFIX, sweep
from reactor.model.errors import Refused, Transient
from reactor.model.ids import ResourceName
from reactor.model.snapshot import Snapshot

_LONGEST_PATH = 107
"""Bytes that the kernel takes as the path of a unix socket."""
_BIND = 5.0
_PROBE = 2.0
"""Seconds within which our own socket has to answer."""
_FRESH = 1.0
"""Seconds for which the probe of ``serve`` counts for ``register``: a kubelet that is back waits for one, not two."""


class PluginServers:
    def __init__(self, door: Door, desk: Desk, *, directory: Path, kubelet_socket: Path) -> None:
        self._door = door
        self._desk = desk
        # Absolute and free of "..": neither a later chdir nor a link may make us serve elsewhere than we registered.
        self._directory = os.path.abspath(directory)
        self._kubelet = os.path.abspath(kubelet_socket)
        self._listeners: dict[ResourceName, Listener] = {}  # belongs to the asyncio side
        self._sockets: dict[ResourceName, str] = {}
        self._probed: dict[str, float] = {}
        """When each socket that is served answered first."""
        self._swept = False

    def sockets(self) -> Mapping[ResourceName, str]:
        """Socket names that are served now, by resource; each is a file in the plugin directory."""
        return dict(self._sockets)

    async def serve(self, resource: ResourceName) -> str:
        """Serve a resource on a fresh socket that has answered our own probe; returns the socket's name.

        A server that the resource had is closed first: the kubelet must see its end before the next one begins.
        """
        socket = socket_name(resource, self._directory)
        if not self._swept:
            await trio.to_thread.run_sync(sweep, self._directory)
            self._swept = True
        await self.close(resource)
        path = os.path.join(self._directory, socket)
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
        self._probed[socket] = trio.current_time()
        return socket

    async def close(self, resource: ResourceName) -> None:
        """End a resource's server with its connections; nothing happens if there is none."""
        self._probed.pop(self._sockets.pop(resource, ""), None)
        await self._door.call(self._stop, resource)

    async def register(self, resource: ResourceName, socket: str, deadline: float = 12.0) -> None:
        """Register a served socket with the kubelet, after a probe of it.

        Never to be called while a stream of this socket is live: up to 1.36 that ends both, or forgets the live one.
        """
        path = os.path.join(self._directory, socket)
        if not self._just_answered(socket, path):
            await self._door.call(calls.probe, path, _PROBE)
        await self._door.call(calls.register, self._kubelet, resource, socket, deadline)

    def _just_answered(self, socket: str, path: str) -> bool:
        fresh = trio.current_time() - self._probed.get(socket, -math.inf) < _FRESH
        return fresh and os.path.exists(path)  # a kubelet that starts sweeps the directory

    def post(self, snapshot: Snapshot) -> None:
        """Hand a snapshot over; it is in force once a later ``settle`` has returned."""
        self._door.post(self._desk.post, snapshot)

    async def settle(self) -> None:
        """Return when everything posted is in force, and what happened at the desk before that was reported."""
        await self._door.call(_nothing)

    async def aclose(self, grace: float) -> None:
        """End all servers; those that are not done after ``grace`` seconds are left to the end of the door."""
        with trio.move_on_after(grace, shield=True):
            async with trio.open_nursery() as nursery:
                for resource in tuple(self._listeners):
                    nursery.start_soon(self.close, resource)

    async def _listen(self, resource: ResourceName, socket: str, path: str) -> None:
        listener = Listener(PluginService(self._desk, resource, socket), path)
        await listener.start()
        self._listeners[resource] = listener

    async def _stop(self, resource: ResourceName) -> None:
        listener = self._listeners.pop(resource, None)
        if listener is not None:
            await listener.stop()


def socket_name(resource: ResourceName, directory: str) -> str:
    """A fresh name, cut so that the whole path fits into what the kernel takes."""
    tail = f"-{secrets.token_hex(4)}.sock"
    room = _LONGEST_PATH - len(os.fsencode(directory)) - 1 - len(PREFIX) - len(tail)
    if room < 1:
        least = _LONGEST_PATH - len(PREFIX) - len(tail) - 2
        raise Refused(
            f"the plugin directory {directory} is too long: the path of a unix socket has at most {_LONGEST_PATH} "
            f"bytes, which leaves {least} for the directory"
        )
    short = re.sub(r"[^A-Za-z0-9._-]", "_", resource.rpartition("/")[2])
    return f"{PREFIX}{short[:room]}{tail}"


async def _nothing() -> None:
    """Arriving is the point: posts and reports keep their order with it."""
