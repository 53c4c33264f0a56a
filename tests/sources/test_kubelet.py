"""Kubelet up, down, replaced; own sockets gone. First with simulated files and time, then with real ones."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

import trio
from trio.testing import MockClock

from reactor.events import KubeletDown, KubeletUp, PluginDirectoryGone, PluginSocketGone
from reactor.kubelet.presence import deleted, look
from reactor.model.kubelet import SocketIdentity
from reactor.sources.kubelet import KubeletSource
from tests.sources.kubelet_world import GPU, World

FIRST, SECOND = SocketIdentity(inode=7, ctime_ns=1), SocketIdentity(inode=7, ctime_ns=2)


class Files:
    """kubelet.sock as the source sees it: what identity the file has, and whether somebody accepts behind it."""

    def __init__(self) -> None:
        self.file: SocketIdentity | None = None
        self.accepts = False
        self.dies_after_accepting = False
        self.connects = 0
        self.deleted = False
        self.changed: Callable[[], None] = lambda: None
        self.names: Callable[[str], bool] | None = None

    def identity(self, path: Path) -> SocketIdentity | None:
        return self.file

    def look(self, path: Path) -> SocketIdentity | str:
        self.connects += 1
        if self.file is None:
            return "missing"
        if not self.accepts:
            return "refused"
        self.accepts = not self.dies_after_accepting
        return self.file

    def up(self, identity: SocketIdentity) -> None:
        self.file, self.accepts = identity, True

    async def watch(
        self,
        directory: Path,
        changed: Callable[[], None],
        *,
        poll: float,
        step: float,
        names: Callable[[str], bool] | None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        self.changed, self.names = changed, names
        task_status.started()
        while True:
            await trio.sleep(poll)
            changed()


@asynccontextmanager
async def simulated(files: Files) -> AsyncIterator[World]:
    world = World()
    source = KubeletSource(
        Path("/nowhere"),
        Path("/nowhere/kubelet.sock"),
        dict,
        publish=world.publish,
        until=world.until,
        state=lambda: world.state,
        look=files.look,
        identity=files.identity,
        watch=files.watch,
        deleted=lambda directory: files.deleted,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run)
        yield world
        nursery.cancel_scope.cancel()


async def test_a_kubelet_that_is_there_at_start_is_told_at_once(autojump_clock: MockClock) -> None:
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        assert world.facts == [KubeletUp(identity=FIRST)]
        assert world.times[0] - trio.current_time() == 0


async def test_a_kubelet_that_comes_after_90_seconds_is_told(autojump_clock: MockClock) -> None:
    """KBL-10"""
    files = Files()
    async with simulated(files) as world:
        await trio.sleep(90)
        assert world.facts == [KubeletDown(reason="missing")]
        files.up(FIRST)
        came = trio.current_time()
        await world.seen(2)
        assert world.facts[1] == KubeletUp(identity=FIRST)
        assert world.times[1] - came <= 1


async def test_a_stale_socket_that_refuses_is_down_until_it_accepts(autojump_clock: MockClock) -> None:
    files = Files()
    files.file = FIRST
    async with simulated(files) as world:
        await world.seen(1)
        assert world.facts == [KubeletDown(reason="refused")]
        files.up(SECOND)
        await world.seen(2)
        assert world.facts[1] == KubeletUp(identity=SECOND)


async def test_after_a_loss_the_new_kubelet_is_seen_within_10_ms_for_a_minute(autojump_clock: MockClock) -> None:
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        world.streams(1)
        await trio.sleep(100)
        for lost in (FIRST, SECOND):
            files.accepts = False
            world.streams(doubted=True)
            count = len(world.facts)
            await world.seen(count + 1)
            assert world.facts[-1] == KubeletDown(reason="refused")
            await trio.sleep(55)
            files.up(SECOND if lost is FIRST else FIRST)
            came = trio.current_time()
            await world.seen(count + 2)
            assert world.times[-1] - came < 0.01
            world.streams(2)
            await trio.sleep(100)


async def test_a_quiet_kubelet_with_a_stream_is_not_connected_to(autojump_clock: MockClock) -> None:
    """KBL-17"""
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        world.streams(1)
        await trio.sleep(1)
        before = files.connects
        await trio.sleep(3600)
        assert files.connects == before
        assert len(world.facts) == 1


async def test_a_new_socket_waits_for_the_end_of_the_old_lifes_stream(autojump_clock: MockClock) -> None:
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        world.streams(1, 2)
        files.up(SECOND)
        files.changed()
        await trio.sleep(5)
        world.streams(2, doubted=True)
        await trio.sleep(200)
        assert world.facts == [KubeletUp(identity=FIRST)]
        world.streams(doubted=True)
        ended = trio.current_time()
        await world.seen(2)
        assert world.facts[1] == KubeletUp(identity=SECOND)
        assert world.times[1] - ended < 0.01


async def test_a_socket_made_again_right_after_the_start_is_a_new_kubelet(autojump_clock: MockClock) -> None:
    """KBL-01"""
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        await trio.sleep(0.05)
        files.up(SECOND)
        await world.seen(2)
        assert world.facts == [KubeletUp(identity=FIRST), KubeletUp(identity=SECOND)]


async def test_a_stream_that_ends_alone_has_the_kubelet_confirmed(autojump_clock: MockClock) -> None:
    """KBL-02, KBL-20"""
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        world.streams(1)
        await trio.sleep(7200)
        world.streams(doubted=True)
        ended = trio.current_time()
        await world.seen(2)
        assert world.facts == [KubeletUp(identity=FIRST)] * 2
        assert world.times[1] - ended < 0.25


async def test_a_kubelet_that_accepts_once_more_while_it_dies_is_down(autojump_clock: MockClock) -> None:
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        world.streams(1)
        await trio.sleep(10)
        files.dies_after_accepting = True
        world.streams(doubted=True)
        await world.seen(2)
        assert world.facts[1] == KubeletDown(reason="refused")


async def test_a_kubelet_killed_while_nobody_streams_is_found_out(autojump_clock: MockClock) -> None:
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        await trio.sleep(300)
        files.accepts = False
        await world.seen(2)
        assert world.facts[1] == KubeletDown(reason="refused")


async def test_a_socket_removed_under_a_live_stream_is_no_loss(autojump_clock: MockClock) -> None:
    files = Files()
    files.up(FIRST)
    async with simulated(files) as world:
        await world.seen(1)
        world.streams(1)
        files.file = None
        files.changed()
        await trio.sleep(120)
        assert len(world.facts) == 1


async def test_the_checkpoint_is_noise(autojump_clock: MockClock) -> None:
    files = Files()
    async with simulated(files):
        names = files.names
        assert names is not None
        assert [name for name in ("kubelet.sock", ".12345", "kubelet_internal_checkpoint") if names(name)] == [
            "kubelet.sock"
        ]


# ---------------------------------------------------------------- real files, the real clock


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(path))
        sock.listen(64)
        yield sock


@asynccontextmanager
async def real() -> AsyncIterator[tuple[World, Path]]:
    world = World()
    with tempfile.TemporaryDirectory(prefix="gr-") as name:
        base = Path(name)

        def sockets() -> dict[object, str]:
            return {GPU: "a.sock"} if world.state.reloads else {}

        source = KubeletSource(
            base,
            base / "kubelet.sock",
            sockets,
            publish=world.publish,
            until=world.until,
            state=lambda: world.state,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(source.run)
            yield world, base
            nursery.cancel_scope.cancel()


async def test_a_kubelet_that_comes_back_on_a_real_socket_is_told_soon() -> None:
    delays = []
    async with real() as (world, base):
        path = base / "kubelet.sock"
        for _ in range(15):
            count = len(world.facts)
            with listening(path):
                came = trio.current_time()
                await world.seen(count + 1)
                delays.append(world.times[-1] - came)
                assert isinstance(world.facts[-1], KubeletUp)
                world.streams(1)
            path.unlink()
            world.streams(doubted=True)
            await world.until(lambda state: state.kubelet.identity is None)
    assert median(delays) < 0.05  # about 4 ms on a quiet machine; the pace itself is shown in simulated time


async def test_fifty_restarts_leave_no_descriptor_task_or_thread_behind() -> None:
    """KBL-21"""
    async with real() as (world, base):
        path = base / "kubelet.sock"

        async def restart() -> None:
            count = len(world.facts)
            with listening(path):
                await world.seen(count + 1)
                world.streams(1)
            path.unlink()
            world.streams(doubted=True)
            await world.until(lambda state: state.kubelet.identity is None)

        await restart()
        before = (len(os.listdir("/proc/self/fd")), threading.active_count(), trio.lowlevel.current_statistics())
        for _ in range(50):
            await restart()
        after = (len(os.listdir("/proc/self/fd")), threading.active_count(), trio.lowlevel.current_statistics())
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert after[2].tasks_living == before[2].tasks_living


async def test_an_own_socket_that_is_swept_is_told_once_and_before_the_new_kubelet() -> None:
    """KBL-04"""
    async with real() as (world, base):
        await world.seen(1)
        with listening(base / "a.sock"):
            world.set(type(world.state)(kubelet=world.state.kubelet, reloads=1))
            await trio.sleep(0.03)
            assert len(world.facts) == 1
            (base / "a.sock").unlink()
            with listening(base / "kubelet.sock"):
                await world.seen(3)
    assert world.facts[1] == PluginSocketGone(resource=GPU, socket="a.sock")
    assert isinstance(world.facts[2], KubeletUp)


async def test_an_own_socket_swept_in_quiet_times_is_told_by_the_directory_watch() -> None:
    """KBL-04"""
    async with real() as (world, base):
        with listening(base / "kubelet.sock"), listening(base / "a.sock"):
            world.set(type(world.state)(kubelet=world.state.kubelet, reloads=1))
            await world.until(lambda state: state.kubelet.identity is not None)
            world.streams(1)
            (base / "a.sock").unlink()
            with trio.fail_after(2):
                await world.until(lambda state: isinstance(world.facts[-1], PluginSocketGone))


async def test_a_directory_that_was_deleted_under_its_mount_is_told_once(autojump_clock: MockClock) -> None:
    files = Files()
    async with simulated(files) as world:
        await world.seen(1)
        files.deleted = True
        await world.seen(2)
        world.set(type(world.state)(kubelet=world.state.kubelet, stranded="so it is"))
        await trio.sleep(100)
        assert world.facts[1:] == [PluginDirectoryGone(directory="/nowhere")]


def test_deleted_is_what_is_still_seen_without_a_name(tmp_path: Path) -> None:
    """A mount goes on showing it, and so does a descriptor. What is seen by its name is there, or it is not."""
    there = tmp_path / "device-plugins"
    there.mkdir()
    mount = os.open(there, os.O_RDONLY | os.O_DIRECTORY)
    try:
        seen = Path(f"/proc/self/fd/{mount}")
        assert (deleted(seen), deleted(there)) == (False, False)
        there.rmdir()
        assert (deleted(seen), deleted(there)) == (True, False)
        there.mkdir()
        assert (deleted(seen), deleted(there)) == (True, False)
    finally:
        os.close(mount)


def test_look_tells_missing_refusing_and_accepting_apart(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gr-") as name:
        path = Path(name) / "kubelet.sock"
        assert look(path) == f"{path} is missing"
        with listening(path):
            assert isinstance(look(path), SocketIdentity)
        assert look(path) == f"{path}: Connection refused"
        assert isinstance(look(Path("/" + "d" * 200)), str)


def test_a_recreated_socket_has_another_identity() -> None:
    with tempfile.TemporaryDirectory(prefix="gr-") as name:
        path = Path(name) / "kubelet.sock"
        seen = []
        for _ in range(2):
            with listening(path):
                seen.append(look(path))
                path.unlink()
            time.sleep(0.002)
    assert seen[0] != seen[1]
