"""A gRPC server on a unix socket that really ends: asyncio side.

grpclib's own stop leaves the accepted connections open: on Python 3.11 the kubelet sees nothing at all and keeps the
plugin for running, on 3.13 the stop waits for the kubelet, which never hangs up. So connections are kept track of here
and ended one by one: GOAWAY, close, and abort for a peer that does not read.

grpclib writes headers, message and trailers one by one, and each send wakes the reader anew: here they leave together.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, H2Protocol
from grpclib.server import Server
from h2.config import H2Configuration
from h2.events import AlternativeServiceAvailable, Event, UnknownFrameReceived
from h2.exceptions import ProtocolError

from reactor.kubelet._pb.deviceplugin_grpc import DevicePluginBase
from reactor.kubelet._pb.pluginregistration_grpc import RegistrationBase

_BACKLOG = 128
_ENOUGH = 1 << 16
"""Bytes that are worth a send of their own."""


class _Together(asyncio.Transport):
    """A transport whose writes of one turn of the loop leave as one."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(bytes(data))
        self._size += len(data)
        if self._size >= _ENOUGH:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._inner.write(data)

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def close(self) -> None:
        self._flush()
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._inner.get_extra_info(name, default)


class _Connection(H2Protocol):
    """One accepted connection, known to its server from its beginning to its end."""

    def __init__(
        self, handler: AbstractHandler, config: Configuration, h2_config: H2Configuration, server: _TrackingServer
    ) -> None:
        super().__init__(handler, config, h2_config)
        self._server = server
        self._transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = _Together(transport)
        super().connection_made(self._transport)
        # RFC 9113 4.1 has unknown frames ignored; grpclib knows no such event and would drop the connection for it.
        for unknown in (UnknownFrameReceived, AlternativeServiceAvailable):
            self.processor.processors[unknown] = _ignore
        self._server.live.add(self)
        if self._server.ended:  # it was being accepted while the server stopped
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.live.discard(self)
        self.lost.set()
        super().connection_lost(exc)

    def part(self) -> None:
        """Say GOAWAY and close once it is written."""
        if self._transport is None or self._transport.is_closing():
            return
        with suppress(ProtocolError):  # the peer broke the protocol before: it gets no farewell
            self.connection._connection.close_connection()
            self.connection.flush()
        self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _ignore(event: Event) -> None:
    """What this frame says does not concern us."""


class _TrackingServer(Server):
    def __init__(self, services: Sequence[DevicePluginBase | RegistrationBase]) -> None:
        super().__init__(services)
        self.live: set[_Connection] = set()
        self.ended = False

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        return _Connection(plain.handler, plain.config, plain.h2_config, self)


class Listener:
    """One plugin on one socket path. ``start`` and ``stop`` are called once each."""

    def __init__(self, service: DevicePluginBase, path: str, *others: RegistrationBase) -> None:
        self.path = path
        self._server = _TrackingServer((service, *others))
        self._identity: tuple[int, int] | None = None
        self._sock: socket.socket | None = None

    @property
    def connections(self) -> int:
        return len(self._server.live)

    async def start(self) -> None:
        """Bind and listen. The path must be free: names are never used twice."""
        # Bound here and not by asyncio, which would unlink the path at close on 3.13, whoever it belongs to by then.
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.bind(self.path)
            self._identity = _identity(self.path)
            await self._server.start(sock=sock, backlog=_BACKLOG)
            self._sock = sock
        except (OSError, asyncio.CancelledError):
            sock.close()
            self._unlink()
            raise

    async def rename(self, path: str) -> None:
        """Give the socket file another name; connections do not notice."""
        os.rename(self.path, path)
        self.path = path
        self._identity = _identity(path)  # a rename is a change of it

    async def stop(self, patience: float = 0.3) -> None:
        """End every connection so that the peer sees it, and remove the socket file if it is still this one.

        Cancelled, it aborts the connections at once.
        """
        self._server.ended = True
        self._unlink()
        try:
            await self._stop_accepting()
            self._server.close()
            for connection in self._server.live:
                connection.part()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    for connection in tuple(self._server.live):
                        await connection.lost.wait()
        finally:
            self._server.close()
            for connection in tuple(self._server.live):
                connection.abort()
        await self._server.wait_closed()

    async def _stop_accepting(self) -> None:
        """asyncio (3.11) leaves open what it accepted in the turn in which its server closes: let that turn pass."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
        await asyncio.sleep(0)

    def _unlink(self) -> None:
        if self._identity is not None and _identity(self.path) == self._identity:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    return (stat.st_ino, stat.st_ctime_ns)
