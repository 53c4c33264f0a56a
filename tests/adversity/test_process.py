"""The real process when the machine around it is short of something, or its visitors are rude."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import trio

from reactor.cli.client import ask
from tests.contract import peer
from tests.fuzz.plugin import SERVICE, message, request
from tests.process.agent import Agent
from tests.process.node import GPU, Node, shared
from tests.process.story import soon

WATCH = request(SERVICE + "ListAndWatch", message(b""))


async def plugin_of(node: Node) -> Path:
    return node.kubelet.directory / await node.served()


@asynccontextmanager
async def strangers(path: Path, count: int, data: bytes = b"") -> AsyncIterator[list[trio.SocketStream]]:
    """Connections that say this and never read."""
    streams = []
    try:
        for _ in range(count):
            stream = await trio.open_unix_socket(str(path))
            streams.append(stream)
            if data:
                await stream.send_all(data)
        yield streams
    finally:
        for stream in streams:
            await trio.aclose_forcefully(stream)


def resident(agent: Agent) -> float:
    """MB."""
    pages = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def test_a_hundred_connections_that_watch_and_read_nothing_hold_nobody_up(node: Node) -> None:
    """Each is one slot that holds the newest list: changes cost no memory. Gone, they leave nothing."""
    node.config.write_text(shared(200))
    agent = await node.start("--allow-inject")
    await node.seen.until("listed", resource=GPU, healthy=400)
    await agent.settled()
    path, before = await plugin_of(node), len(agent.descriptors())
    async with strangers(path, 100, WATCH):
        await soon(lambda: len(agent.descriptors()) >= before + 100, "a hundred connections")
        await flap(node, agent, 5)  # each is stuck by now: its window is 64 KB, a list has 25 KB
        stuck = resident(agent)
        await flap(node, agent, 15)
        assert await node.allocate("meanwhile", 1) == ""
        assert resident(agent) < stuck + 4, "1500 lists that were never read have 37 MB"
    await soon(lambda: len(agent.descriptors()) == before, "the end of a hundred connections")


async def flap(node: Node, agent: Agent, times: int) -> None:
    """A GPU of 200 shares fails and is mended."""
    for _ in range(times):
        after = node.seen.now
        node.gpus.xid(0, 79)
        await node.seen.until("listed", after=after, resource=GPU, healthy=200)
        after = node.seen.now
        await trio.to_thread.run_sync(clear, agent)
        await node.seen.until("listed", after=after, resource=GPU, healthy=400)


def clear(agent: Agent) -> None:
    status, answer = ask(str(agent.admin), "POST", "/debug/inject", json.dumps(["clear", "gpu=0", "reason=x"]).encode())
    assert status == 200, answer


async def test_a_request_of_20_mb_is_answered(node: Node) -> None:
    """SHR-11"""
    await node.settled()
    path = await plugin_of(node)
    (uuid, _) = (gpu.uuid for gpu in node.gpus.gpus)
    many = [f"{uuid}::{number:07d}" for number in range(420_000)]

    def ask() -> list[str]:
        with peer.client(path) as client:
            return client.preferred([*many, uuid], [], 1)

    assert await trio.to_thread.run_sync(ask) == [uuid]
    assert await node.allocate("after", 2) == ""


async def test_random_bytes_on_both_sockets_end_nothing(node: Node) -> None:
    agent = await node.settled()
    path = await plugin_of(node)
    before = len(agent.descriptors())
    for number in range(60):
        noise = os.urandom(1 + number * 7)
        for place in (path, node.admin):
            with suppress(trio.BrokenResourceError):
                async with await trio.open_unix_socket(str(place)) as stream:
                    await stream.send_all((WATCH if number % 3 else b"") + noise)
    assert await node.allocate("after", 2) == ""
    await soon(lambda: len(agent.descriptors()) <= before, "the end of every visit")
    assert node.seen.of("stream.ended") == []
    assert (await agent.state())["agent"]["ready"]


async def test_without_descriptors_it_waits_for_some_and_keeps_what_it_has(node: Node) -> None:
    """EMFILE: nothing new can be opened, whatever is open goes on; afterwards all is as it was."""
    agent = await node.settled()
    path = await plugin_of(node)
    limits = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (len(agent.descriptors()) + 2, limits[1]))
    async with strangers(path, 20, WATCH), strangers(node.admin, 20):
        node.config.write_text(shared(2))
        agent.send(signal.SIGHUP)
        await agent.log.until("agent.signalled")
        assert await node.allocate("meanwhile", 2) == "", "the kubelet's connection is open already"
        node.gpus.xid(1, 79)
        await node.seen.until("listed", resource=GPU, unhealthy=1)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, limits)
    await node.seen.until("listed", resource=GPU, unhealthy=6)  # both are held whole: tombstones and shares
    assert node.seen.of("stream.ended") == []
    state = await agent.state()
    assert state["agent"]["ready"]


async def test_stopped_and_continued_it_goes_on_where_it_was(node: Node) -> None:
    """What happened meanwhile is caught up with: an edit, a fault, a kubelet that is another one."""
    agent = await node.settled()
    stopped = node.seen.now
    agent.send(signal.SIGSTOP)
    node.config.write_text(shared(2))
    node.gpus.xid(0, 79)
    await node.kubelet.restart()
    agent.send(signal.SIGCONT)
    await node.seen.until("listed", after=stopped, resource=GPU, healthy=2)
    assert await node.kubelet.streams(GPU) == 1
    await soon(lambda: len(node.plugin_sockets()) == 1, "one socket")
    state = await agent.state()
    assert state["agent"]["ready"]
    assert [gpu["health"] for gpu in state["gpus"]] == ["unhealthy", "healthy"]


QUOTAS = {"/sys/fs/cgroup": ("cpu.max", "5000 100000"), "/sys/fs/cgroup/cpu": ("cpu.cfs_quota_us", "5000")}
"""Where a cgroup of the second version and of the first one has its quota."""


@contextmanager
def a_twentieth_of_a_core(pid: int) -> Iterator[None]:
    for top, setting in QUOTAS.items():
        group, (name, value) = Path(top, f"gpu-reactor-{pid}"), setting
        with suppress(OSError):
            group.mkdir()
        if (group / name).exists():  # only the kernel makes it
            break
        with suppress(OSError):
            group.rmdir()
    else:
        pytest.skip("no cgroup with a CPU quota can be made here")
    try:
        (group / name).write_text(value)
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for each in (group / "cgroup.procs").read_text().split():  # its children begin where it is
            (group.parent / "cgroup.procs").write_text(each)
        group.rmdir()


@pytest.mark.root("a cgroup of its own")
async def test_on_a_twentieth_of_a_core_it_is_slow_and_right(node: Node) -> None:
    agent = await node.settled()
    with a_twentieth_of_a_core(agent.pid):
        node.gpus.xid(0, 79)
        await node.seen.until("listed", resource=GPU, unhealthy=1)
        assert await node.allocate("slow", 1) == ""
    assert node.seen.of("stream.ended") == []
    assert (await agent.state())["agent"]["ready"]
