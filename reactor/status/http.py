"""A small HTTP/1.1 server: h11 on trio, one request a connection, over TCP or a unix socket alike.

It protects itself by refusing, never by queueing: a queue in front of a probe lets idle connections hold it up. When
the house is full, the connection that has dawdled longest over its request makes room; if all are being answered, the
new one gets a 503.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import parse_qsl

import h11
import trio
from msgspec import Struct, field

HEAD_LIMIT = 8 * 1024
BODY_LIMIT = 64 * 1024
REQUEST_SECONDS = 2.0
"""For the whole request to arrive."""
SEND_SECONDS = 10.0
"""For the other side to take what one send holds: a reader that stopped must not keep its place."""
CONNECTIONS = 32
_LEFT = (trio.BrokenResourceError, trio.ClosedResourceError)

log = logging.getLogger(__name__)


class Request(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    """Which forms of the answer the other side takes."""
    body: bytes = b""


class Reply(Struct, frozen=True, kw_only=True):
    """A whole answer, or with ``more`` a stream that is sent piece by piece until a piece is empty."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    more: Callable[[], Awaitable[bytes]] | None = None


Handler = Callable[[Request], Reply]


def say(status: int, text: str) -> Reply:
    """A line of text for people."""
    return Reply(status=status, body=text.encode() + b"\n")


async def serve(
    handle: Handler,
    listeners: Sequence[trio.SocketListener],
    *,
    methods: Sequence[str] = ("GET", "HEAD"),
    connections: int = CONNECTIONS,
    body_limit: int = BODY_LIMIT,
) -> None:
    """Serve until cancelled; closes the listeners. ``handle`` is called on the trio thread and must be quick."""
    house = _House(handle, tuple(methods), connections, body_limit)
    await trio.serve_listeners(house.welcome, list(listeners))


class _House:
    def __init__(self, handle: Handler, methods: tuple[str, ...], connections: int, body_limit: int) -> None:
        self._handle = handle
        self._methods = methods
        self._places = connections
        self._body_limit = body_limit
        self._reading: dict[trio.CancelScope, None] = {}
        """Connections whose request is not whole yet, the oldest first."""

    async def welcome(self, stream: trio.SocketStream) -> None:
        """One connection from accept to close. Trouble with the other side ends here."""
        try:
            with trio.move_on_after(REQUEST_SECONDS + SEND_SECONDS) as whole:
                await self._admit(stream, whole)
        except _LEFT:
            pass  # The other side went away: that is its right.
        finally:
            await trio.aclose_forcefully(stream)

    async def _admit(self, stream: trio.SocketStream, whole: trio.CancelScope) -> None:
        visit = _Visit(stream, self._body_limit)
        if self._places <= 0 and not self._make_room():
            await visit.send(say(503, "busy: too many connections at once"))
            return
        self._places -= 1
        try:
            request = await self._read(visit)
            if request is not None:
                whole.deadline = float("inf")  # From here on each send has a deadline of its own.
                await visit.send(self._answer(request))
        finally:
            self._places += 1

    def _make_room(self) -> bool:
        for slowest in self._reading:
            slowest.cancel()
            del self._reading[slowest]
            return True
        return False

    async def _read(self, visit: _Visit) -> Request | None:
        """The request, or None where it was not worth an answer or was already answered."""
        with trio.move_on_after(REQUEST_SECONDS) as reading:
            self._reading[reading] = None
            try:
                return await visit.read(self._methods)
            except h11.RemoteProtocolError as exc:
                refusal = say(exc.error_status_hint, f"bad request: {exc}")
            except _Declined as exc:
                refusal = exc.reply
            finally:
                self._reading.pop(reading, None)
            await visit.send(refusal)
            await visit.linger()
        return None

    def _answer(self, request: Request) -> Reply:
        try:
            return self._handle(request)
        except Exception as exc:  # Supervised boundary: a page that fails must not end the agent.
            log.exception("status.failed")
            return say(500, f"{request.path} failed: {type(exc).__name__}: {exc}")


class _Declined(Exception):
    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class _Visit:
    """One connection's HTTP side."""

    def __init__(self, stream: trio.SocketStream, body_limit: int) -> None:
        self._stream = stream
        self._body_limit = body_limit
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
        self._head_only = False

    async def read(self, methods: tuple[str, ...]) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        method = head.method.decode("ascii")
        self._head_only = method == "HEAD"
        if method not in methods:
            raise _Declined(say(405, f"{method} is not served here, only {', '.join(methods)}"))
        body = await self._body() if method == "POST" else b""
        path, _, query = head.target.decode("ascii").partition("?")
        accept = next((value.decode("latin-1") for name, value in head.headers if name == b"accept"), "")
        return Request(method=method, path=path, query=dict(parse_qsl(query)), accept=accept, body=body)

    async def _body(self) -> bytes:
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > self._body_limit:
                raise _Declined(say(413, f"more than {self._body_limit} bytes"))
        return bytes(body)

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(HEAD_LIMIT))
        return event

    async def send(self, reply: Reply) -> None:
        headers = [("Content-Type", reply.content_type), ("Cache-Control", "no-store"), ("Connection", "close")]
        if reply.more is None:
            headers.append(("Content-Length", str(len(reply.body))))
        await self._put(h11.Response(status_code=reply.status, headers=headers), self._piece(reply.body))
        if reply.more is not None and not self._head_only:
            await self._stream_pieces(reply.more)
        await self._put(h11.EndOfMessage())
        await self._stream.send_eof()

    async def linger(self) -> None:
        """Take in what is still on its way: closing before that would have the kernel discard our answer."""
        while await self._stream.receive_some(HEAD_LIMIT):
            pass

    async def _stream_pieces(self, more: Callable[[], Awaitable[bytes]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_hangup, nursery.cancel_scope)
            try:
                while piece := await more():
                    await self._put(self._piece(piece))
            except _LEFT:
                pass  # Caught inside the nursery, which would wrap it; the next send fails alike.
            nursery.cancel_scope.cancel()

    def _piece(self, data: bytes) -> h11.Data | None:
        return h11.Data(data=data) if data and not self._head_only else None

    async def _put(self, *events: h11.Response | h11.Data | h11.EndOfMessage | None) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events if event is not None)
        with trio.move_on_after(SEND_SECONDS) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the other side does not read")

    async def _until_hangup(self, scope: trio.CancelScope) -> None:
        """A stream that has nothing to say would not notice that its reader left."""
        try:
            while await self._stream.receive_some(HEAD_LIMIT):
                pass
        except _LEFT:
            pass
        scope.cancel()
