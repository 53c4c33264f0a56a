"""The admin socket as a real socket on the real clock."""

from __future__ import annotations

import json
import os
import random
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from reactor.events import Fact, SourceFailed, SourceRecovered, XidReported
from reactor.status.admin import serve_admin
from reactor.status.ring import Ring
from tests.status.node import READY, SNAPSHOT
from tests.status.test_http import get, read_all


class Admin:
    def __init__(self, path: Path, *, allow: bool = True) -> None:
        self.path = path
        self.allow = allow
        self.facts: list[Fact] = []
        self.ring = Ring()
        self._came = trio.Event()

    def publish(self, fact: Fact) -> None:
        self.facts.append(fact)
        self._came.set()
        self._came = trio.Event()

    async def until(self, kind: type[Fact]) -> Fact:
        while True:
            for fact in self.facts:
                if isinstance(fact, kind):
                    return fact
            await self._came.wait()

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await serve_admin(
            self.path,
            state=lambda: READY,
            snapshot=lambda: SNAPSHOT,
            publish=self.publish,
            allow_inject=self.allow,
            lines=self.ring,
            task_status=task_status,
        )

    async def ask(self, data: bytes) -> bytes:
        with trio.fail_after(5):
            async with await trio.open_unix_socket(str(self.path)) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(data)
                return await read_all(stream)

    async def inject(self, body: bytes) -> bytes:
        head = f"POST /debug/inject HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        return await self.ask(head.encode() + body)


@asynccontextmanager
async def admin(path: Path, **options) -> AsyncIterator[Admin]:
    served = Admin(path, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(served.serve)
        yield served
        nursery.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "agent.sock"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def exists(path: Path) -> bool:
    return path.exists()


def text(path: Path) -> str:
    return path.read_text()


def put_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")


async def test_state_is_a_versioned_document(path: Path):
    async with admin(path) as agent:
        head, _, body = (await agent.ask(get("/debug/state"))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"application/json" in head
    document = json.loads(body)
    assert (document["v"], document["agent"]["version"]) == (1, "1.2.3")


async def test_the_socket_is_for_its_owner_and_goes_when_the_agent_goes(path: Path):
    async with admin(path):
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o755
    assert not exists(path)


async def test_an_injected_fact_is_published(path: Path):
    """HLT-29"""
    async with admin(path) as agent:
        answer = await agent.inject(b'["xid=79", "gpu=0"]')
        assert answer.startswith(b"HTTP/1.1 200")
    (fact,) = agent.facts
    assert isinstance(fact, XidReported)
    assert fact.synthetic


async def test_nothing_is_injected_unless_the_agent_allows_it(path: Path):
    async with admin(path, allow=False) as agent:
        answer = await agent.inject(b'["xid=79", "gpu=0"]')
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"--allow-inject" in answer
    assert agent.facts == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{}", b"[1]", b'["xid=79"]', b"[" * 60_000])
async def test_a_bad_injection_is_refused(path: Path, body: bytes):
    async with admin(path) as agent:
        assert (await agent.inject(body)).startswith(b"HTTP/1.1 400")
    assert agent.facts == []


async def test_other_paths_and_methods_are_refused(path: Path):
    async with admin(path) as agent:
        assert (await agent.ask(get("/"))).startswith(b"HTTP/1.1 404")
        assert (await agent.ask(get("/debug/inject"))).startswith(b"HTTP/1.1 405")


async def test_events_are_the_last_lines_and_follow_goes_on(path: Path):
    async with admin(path) as agent:
        agent.ring.append(b'{"seq":1}')
        assert b'{"seq":1}\n' in await agent.ask(get("/debug/events"))
        with trio.fail_after(5):
            async with await trio.open_unix_socket(str(path)) as stream:
                await stream.send_all(get("/debug/events?follow=1"))
                seen = b""
                while b'{"seq":1}' not in seen:
                    seen += await stream.receive_some()
                agent.ring.append(b'{"seq":2}')
                while b'{"seq":2}' not in seen:
                    seen += await stream.receive_some()


async def test_malformed_bytes_never_end_the_listener(path: Path):
    rng = random.Random(3)
    seeds = [get("/debug/state"), get("/debug/events"), b"POST /debug/inject HTTP/1.1\r\nHost: x\r\n\r\n[]"]
    async with admin(path) as agent:
        for _ in range(60):
            data = bytearray(rng.choice(seeds))
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            async with await trio.open_unix_socket(str(path)) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(data[: rng.randint(0, len(data))])
                    await stream.send_eof()
                    with trio.fail_after(5):
                        await read_all(stream)
        assert (await agent.ask(get("/debug/state"))).startswith(b"HTTP/1.1 200")


async def test_a_socket_that_nobody_answers_on_is_replaced(path: Path):
    path.parent.mkdir()
    left = trio.socket.socket(trio.socket.AF_UNIX)
    await left.bind(str(path))
    left.close()
    async with admin(path) as agent:
        assert (await agent.ask(get("/debug/state"))).startswith(b"HTTP/1.1 200")
    assert agent.facts == []


async def test_a_second_agent_leaves_the_socket_alone_and_takes_it_when_it_is_free(path: Path, autojump_clock):
    second = Admin(path)
    async with trio.open_nursery() as nursery:
        async with admin(path) as first:
            await nursery.start(second.serve)
            failed = await second.until(SourceFailed)
            assert isinstance(failed, SourceFailed)
            assert (failed.source, failed.attempt) == ("admin", 1)
            assert "another agent answers there" in failed.error
            assert (await first.ask(get("/debug/state"))).startswith(b"HTTP/1.1 200")
        await second.until(SourceRecovered)
        assert (await second.ask(get("/debug/state"))).startswith(b"HTTP/1.1 200")
        nursery.cancel_scope.cancel()


async def test_a_file_in_the_way_is_not_removed(path: Path):
    put_file(path)
    async with admin(path) as agent:
        failed = await agent.until(SourceFailed)
    assert "not a socket" in str(failed)
    assert text(path) == "precious"


async def test_a_directory_that_cannot_be_made_is_a_fault_and_not_the_end(tmp_path: Path):
    (tmp_path / "file").touch()
    async with admin(tmp_path / "file" / "agent.sock") as agent:
        assert isinstance(await agent.until(SourceFailed), SourceFailed)


async def test_a_path_that_no_socket_can_have_is_a_fault_and_not_the_end(tmp_path: Path):
    async with admin(tmp_path / ("x" * 120)) as agent:
        assert isinstance(await agent.until(SourceFailed), SourceFailed)


async def test_it_does_not_remove_a_socket_that_another_agent_put_there(path: Path):
    async with admin(path):
        os.unlink(path)
        other = trio.socket.socket(trio.socket.AF_UNIX)
        await other.bind(str(path))
    assert exists(path)
    other.close()
