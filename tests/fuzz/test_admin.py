"""The admin socket and the probes under bytes that no client sends: they stay, others are served, nothing is left."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from reactor.events import Fact, SourceFailed
from reactor.status.admin import serve_admin
from reactor.status.ring import Ring
from tests.status.node import READY, SNAPSHOT

bounded = settings(max_examples=200 if os.environ.get("GPU_REACTOR_THOROUGH") else 8, deadline=None)
HEAD = b"GET /debug/events HTTP/1.1\r\nHost: x\r\n\r\n"


class Admin:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: list[Fact] = []
        self.ring = Ring()

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await serve_admin(
            self.path,
            state=lambda: READY,
            snapshot=lambda: SNAPSHOT,
            publish=self.facts.append,
            allow_inject=True,
            lines=self.ring,
            task_status=task_status,
        )

    async def speak(self, data: bytes, *, listen: bool = True) -> bytes:
        """Send, end our side, and read to the end; or leave at once."""
        heard = b""
        with trio.fail_after(5), suppress(trio.BrokenResourceError):
            async with await trio.open_unix_socket(str(self.path)) as stream:
                await stream.send_all(data)
                if listen:
                    stream.socket.shutdown(socket.SHUT_WR)
                    async for piece in stream:
                        heard += piece
        return heard


def scene(play: Callable[[Admin], Awaitable[None]]) -> None:
    """One life of the admin socket. At its end a well-behaved client is answered, and nothing is left of the others."""

    async def main() -> None:
        async with opened() as admin:
            assert b" 200 " in await admin.speak(HEAD)
            before = await rest()
            await play(admin)
            assert b" 200 " in await admin.speak(HEAD)
            assert await rest() == before
            assert not any(isinstance(fact, SourceFailed) for fact in admin.facts)

    trio.run(main)


@asynccontextmanager
async def opened() -> AsyncIterator[Admin]:
    with tempfile.TemporaryDirectory(prefix="gr-") as name:
        admin = Admin(Path(name) / "agent.sock")
        async with trio.open_nursery() as nursery:
            await nursery.start(admin.serve)
            yield admin
            nursery.cancel_scope.cancel()


async def rest() -> tuple[int, int]:
    """(tasks, descriptors) with every visit over."""
    await trio.testing.wait_all_tasks_blocked(0.002)
    return trio.lowlevel.current_statistics().tasks_living, len(os.listdir("/proc/self/fd"))


def pieces() -> st.SearchStrategy[bytes]:
    """What looks like HTTP here and there."""
    words = [
        b"GET ",
        b"POST ",
        b"/debug/inject",
        b"/debug/state",
        b" HTTP/1.1\r\n",
        b"\r\n",
        b"Host: x\r\n",
        b"\0",
        b"%",
    ]
    more = [b"Content-Length: 9\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n", b"ffffffffff\r\n"]
    return st.lists(st.sampled_from(words + more) | st.binary(max_size=20), max_size=12).map(b"".join)


@bounded
@given(st.lists(pieces() | st.binary(max_size=300), min_size=1, max_size=20), st.booleans())
def test_what_is_no_request(spoken: list[bytes], listen: bool) -> None:
    async def play(admin: Admin) -> None:
        for data in spoken:
            await admin.speak(data, listen=listen)

    scene(play)


@bounded
@given(st.data())
def test_a_request_that_breaks_off_anywhere(data: st.DataObject) -> None:
    body = b'["xid=79", "gpu=0"]'
    whole = b"POST /debug/inject HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    cuts = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=20))

    async def play(admin: Admin) -> None:
        for cut in cuts:
            await admin.speak(whole[:cut])
        assert admin.facts == [], "half a request injects nothing"

    scene(play)


words = st.sampled_from(
    ["xid=79", "xid=", "xid=-1", "xid=9999999999999999999999", "gpu=0", "gpu=", "gpu=x", "gi=1", "é"]
)
loose = st.recursive(st.none() | st.floats() | st.text(max_size=5) | words, lambda inner: st.lists(inner, max_size=4))


@bounded
@given(st.lists(st.lists(words | st.text(max_size=8), max_size=5) | loose, max_size=20))
def test_words_that_mean_nothing_are_refused_with_a_reason(said: list[object]) -> None:
    async def play(admin: Admin) -> None:
        for each in said:
            body = json.dumps(each).encode("utf-8", "surrogatepass")
            head = b"POST /debug/inject HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            before = len(admin.facts)
            answer = await admin.speak(head + body)
            assert (b" 200 " in answer) == (len(admin.facts) > before)
            assert b" 200 " in answer or b" 400 " in answer, answer

    scene(play)


def test_two_hundred_visitors_who_say_nothing_keep_nobody_out() -> None:
    """Slots go to those who ask; who dawdles makes room."""

    async def play(admin: Admin) -> None:
        silent = [await trio.open_unix_socket(str(admin.path)) for _ in range(200)]
        for stream in silent:
            with suppress(trio.BrokenResourceError):  # who made room already
                await stream.send_all(b"GET /")
        for _ in range(5):
            assert b" 200 " in await admin.speak(HEAD)
        for stream in silent:
            await trio.aclose_forcefully(stream)

    scene(play)
