"""The kubelet's plugin watcher over a real directory: asyncio side."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from grpclib.client import Channel
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from reactor.kubelet._pb import pluginregistration_pb2 as pb
from reactor.kubelet._pb.pluginregistration_grpc import RegistrationStub
from reactor.simulate.kubelet import texts
from reactor.simulate.kubelet.registration import RegisterError
from reactor.simulate.kubelet.watcher import INFO_WITHIN, LOOP, NOTIFY_WITHIN, Info, Watched


class SocketWatcher:
    """One life of it: what it registered is forgotten with the kubelet's process."""

    def __init__(
        self,
        directory: Path,
        *,
        connect: Callable[[str, str], Awaitable[None]],
        removed: Callable[[str, str], None],
        spawn: Callable[[Coroutine[object, object, None]], object],
        undoes: bool,
    ) -> None:
        """``connect`` takes a resource and its socket as a Register does; ``removed`` hears of one that is gone.

        ``undoes``: whether what failed is undone, and tried again.
        """
        self._directory = directory
        self._connect = connect
        self._removed = removed
        self._spawn = spawn
        self._undoes = undoes
        self._watched = Watched()

    async def run(self) -> None:
        while True:
            present = scan(self._directory)
            for socket, resource in self._watched.gone(present):
                self._removed(resource, socket)
            for socket in self._watched.fresh(present, _now()):
                self._spawn(self._ask(socket, present[socket]))
            await asyncio.sleep(LOOP)

    async def _ask(self, socket: str, file: object) -> None:
        """Ask a socket that was found who it is, take it, and tell it so."""
        name, error = "", None
        try:
            async with Channel(path=socket) as channel:
                stub = RegistrationStub(channel)
                told = await stub.GetInfo(pb.InfoRequest(), timeout=INFO_WITHIN)
                name = told.name
                error = await self._take(socket, file, told)
                status = pb.RegistrationStatus(plugin_registered=error is None, error=error or "")
                await stub.NotifyRegistrationStatus(status, timeout=NOTIFY_WITHIN)
        except (GRPCError, StreamTerminatedError, ProtocolError, OSError, AssertionError) as failure:
            error = str(failure)  # it does not say, or does not hear; AssertionError: grpclib's word for a cut reply
        if error is not None:
            self._fail(name, socket)

    async def _take(self, socket: str, file: object, told: pb.PluginInfo) -> str | None:
        """Why it is not taken."""
        info = Info(told.type, told.name, told.endpoint, tuple(told.supported_versions))
        error = info.wrong(socket)
        if error is not None:
            return error
        self._watched.dialled(socket, file, info.name)
        try:
            await self._connect(info.name, info.endpoint or socket)
        except RegisterError as refusal:
            return texts.not_registered(str(refusal))
        return None

    def _fail(self, name: str, socket: str) -> None:
        dialled = socket in self._watched.registered
        if dialled and self._undoes:
            self._removed(name, socket)
        if self._undoes or not dialled:
            self._watched.failed(socket, _now())


def scan(directory: Path) -> dict[str, object]:
    """Sockets by path, in sub-directories too, each with what tells it from the next one of that name."""
    found: dict[str, object] = {}
    for parent, below, names in os.walk(directory):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            try:
                seen = os.stat(path)
            except OSError:
                continue  # it went meanwhile
            if stat.S_ISSOCK(seen.st_mode) and not name.startswith("."):
                found[path] = (seen.st_ino, seen.st_mtime_ns)
    return found


def _now() -> float:
    return asyncio.get_running_loop().time()
