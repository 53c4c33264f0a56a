"""The server on real sockets and the real clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
import trio.testing

from reactor.status.http import BODY_LIMIT, HEAD_LIMIT, Handler, Reply, Request, say, serve


def echo(request: Request) -> Reply:
    return say(200, f"{request.method} {request.path} {dict(request.query)} {request.body.decode()}")


@asynccontextmanager
async def served(handle: Handler = echo, **options) -> AsyncIterator[Callable[[], Awaitable[trio.SocketStream]]]:
    """Yields what connects to the server."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, handle, listeners, **options))
        yield partial(trio.open_tcp_stream, host, port)
        nursery.cancel_scope.cancel()


async def read_all(stream: trio.SocketStream) -> bytes:
    data = bytearray()
    try:
        async for piece in stream:
            data += piece
    except trio.BrokenResourceError:
        pass  # A reset: the server closed while bytes of ours were on the way.
    return bytes(data)


async def talk(connect, data: bytes) -> bytes:
    with trio.fail_after(5):
        stream = await connect()
        async with stream:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(data)
            return await read_all(stream)


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_a_request_is_answered_and_the_connection_closed():
    async with served() as connect:
        answer = await talk(connect, get("/a?b=c&d=%20e"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in head.lower()
    assert body == b"GET /a {'b': 'c', 'd': ' e'} \n"


async def test_head_has_the_length_and_no_body():
    async with served() as connect:
        answer = await talk(connect, get("/", "HEAD"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 11" in head.lower()
    assert body == b""


async def test_methods_that_are_not_served_are_refused():
    async with served() as connect:
        answer = await talk(connect, get("/", "POST"))
        assert answer.startswith(b"HTTP/1.1 405")
        assert b"only GET, HEAD" in answer
        assert (await talk(connect, get("/", "CONNECT"))).startswith(b"HTTP/1.1 405")


async def test_a_body_arrives_whole_up_to_its_limit():
    async with served(methods=("POST",)) as connect:
        head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
        assert (await talk(connect, head.format(3).encode() + b"abc")).endswith(b"abc\n")
        size = BODY_LIMIT + 1
        answer = await talk(connect, head.format(size).encode() + b"x" * size)
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (HEAD_LIMIT + 1),
    ],
)
async def test_what_is_no_request_gets_a_4xx(garbage: bytes):
    async with served() as connect:
        assert (await talk(connect, garbage)).startswith(b"HTTP/1.1 4")
        assert (await talk(connect, get("/"))).startswith(b"HTTP/1.1 200")


async def test_a_page_that_fails_is_a_500_and_the_server_stays(caplog: pytest.LogCaptureFixture):
    def handle(request: Request) -> Reply:
        if request.path == "/bad":
            raise ZeroDivisionError("oops")
        return say(200, "ok")

    async with served(handle) as connect:
        answer = await talk(connect, get("/bad"))
        assert answer.startswith(b"HTTP/1.1 500")
        assert b"/bad failed: ZeroDivisionError: oops" in answer
        assert (await talk(connect, get("/"))).startswith(b"HTTP/1.1 200")
    assert "status.failed" in caplog.text


async def test_half_open_connections_do_not_keep_anybody_out():
    """ecosystem.md 1.6: with a queue, 100 half-open requests blocked a probe for more than 8 s."""
    async with served(connections=4) as connect, trio.open_nursery() as nursery:
        idle = [await connect() for _ in range(20)]
        for stream in idle:
            await stream.send_all(b"GET /")
        with trio.fail_after(1):
            assert (await talk(connect, get("/"))).startswith(b"HTTP/1.1 200")
            assert await read_all(idle[0]) == b""  # The oldest made room.
        for stream in idle:
            nursery.start_soon(stream.aclose)


async def test_when_all_are_being_answered_the_next_one_is_refused_at_once():
    async def never() -> bytes:
        await trio.sleep_forever()
        return b""

    async with served(lambda request: Reply(more=never), connections=2) as connect:
        streams = [await connect() for _ in range(2)]
        for stream in streams:
            await stream.send_all(get("/"))
            await stream.receive_some()  # Its head: it is being answered now.
        assert (await talk(connect, get("/"))).startswith(b"HTTP/1.1 503")
        await streams[0].aclose()
        while (await talk_head(connect)).startswith(b"HTTP/1.1 503"):
            await trio.lowlevel.checkpoint()
        await streams[1].aclose()


async def talk_head(connect) -> bytes:
    async with await connect() as stream:
        try:
            await stream.send_all(get("/"))
            return bytes(await stream.receive_some())
        except trio.BrokenResourceError:
            return b"HTTP/1.1 503"


async def test_a_head_that_does_not_come_is_given_up_after_two_seconds(autojump_clock: trio.testing.MockClock):
    async with served() as connect:
        stream = await connect()
        begin = trio.current_time()
        assert await read_all(stream) == b""
        assert trio.current_time() - begin == pytest.approx(2, abs=0.1)
        await stream.aclose()


async def test_a_stream_goes_on_until_its_reader_leaves():
    left = trio.Event()
    pieces = [b"one\n", b"two\n"]

    async def more() -> bytes:
        if pieces:
            return pieces.pop(0)
        try:
            await trio.sleep_forever()
        finally:
            left.set()
        return b""

    async with served(lambda request: Reply(more=more)) as connect:
        stream = await connect()
        await stream.send_all(get("/"))
        data = b""
        while b"two" not in data:
            data += await stream.receive_some()
        await stream.aclose()
        with trio.fail_after(1):
            await left.wait()


async def test_a_reader_that_stops_reading_is_dropped(autojump_clock: trio.testing.MockClock):
    async def more() -> bytes:
        await trio.lowlevel.checkpoint()
        return b"x" * (1 << 20)

    async with served(lambda request: Reply(more=more)) as connect:
        stream = await connect()
        await stream.send_all(get("/"))
        await trio.sleep(60)
        await read_all(stream)  # Without a deadline on sending this would never end.
        await stream.aclose()
