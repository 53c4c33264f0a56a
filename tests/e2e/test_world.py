"""The private worlds that nodes live in: what is in one stays in it, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio

from tests.e2e import cgroups
from tests.e2e import world as worlds
from tests.e2e.world import NotHere, Process, World

ROOT = Path(__file__).parents[2]
OWNER = """
import signal
from tests.e2e.world import World
world = World()
with open(world.folder / "out", "wb") as out:
    process = world.start(["sleep", "1000"], stdout=out.fileno(), groups=["/sys/fs/cgroup/pids/deep/er"])
print(world.folder, world.cgroup, process.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def started(world: World, *argv: str, groups: Sequence[Path] = ()) -> Process:
    with open(os.devnull, "wb") as nothing:
        return world.start(argv, stdout=nothing.fileno(), groups=groups)


async def said(world: World, *argv: str) -> str:
    out = world.folder / "said"
    with out.open("wb") as file:
        process = world.start(argv, stdout=file.fileno())
    await process.ended()
    return out.read_text()


def groups_of(name: str) -> list[Path]:
    return [group for group in cgroups.folders(name) if group.exists()]


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def devices() -> set[str]:
    return {each.name for each in Path("/dev").iterdir()}


def listening() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 6443))
    made.listen()
    return made


async def test_a_world_sees_only_its_own_processes_network_and_cgroups(world: World):
    processes = (await said(world, "ps", "-eo", "args")).splitlines()
    assert len(processes) == 3  # the heading, init and ps itself
    assert await said(world, "hostname") == "n1\n"
    assert "10.77.0.1" in await said(world, "ip", "-brief", "address")
    assert await said(world, "ls", "/var/lib/kubelet") == ""
    own = (await said(world, "cat", "/proc/self/cgroup")).splitlines()
    assert {line.rpartition(":")[2] for line in own} == {"/parts" if cgroups.unified() else "/"}


async def test_gpu_device_nodes_show_in_the_world_only(world: World):
    assert "nvidia15" in await said(world, "ls", "/dev")
    assert "nvidia15" not in devices()


async def test_exit_codes_and_signals_reach_the_tests(world: World):
    failing, sleeping = started(world, "sh", "-c", "exit 3"), started(world, "sleep", "1000")
    assert await failing.ended() == 3
    assert not failing.alive
    assert sleeping.alive
    sleeping.send(signal.SIGTERM)
    assert await sleeping.ended() == -signal.SIGTERM
    sleeping.send(signal.SIGTERM)  # nobody there: no matter


async def test_a_program_that_is_not_there_is_named(world: World):
    with pytest.raises(OSError, match="no-such-program"):
        started(world, "/no-such-program")


async def test_two_worlds_use_the_same_address_side_by_side(world: World):
    other = World()
    with world.inside(listening) as one, other.inside(listening) as another:
        assert one.getsockname() == another.getsockname()
    other.close()


async def test_a_closed_world_leaves_nothing(world: World):
    process = started(world, "sh", "-c", "sleep 1000 & exec sleep 1000")
    world.close()
    assert not process.alive
    assert not world.folder.exists()
    assert groups_of(world.cgroup) == []
    assert str(world.folder) not in mounts()


async def test_what_is_frozen_ends_with_its_world(world: World):
    inner = Path("/sys/fs/cgroup") / ("" if cgroups.unified() else "freezer") / "frozen"
    process = started(world, "sleep", "1000", groups=[inner])
    state, word = ("cgroup.freeze", "1") if cgroups.unified() else ("freezer.state", "FROZEN")
    (world.cgroup_folder("freezer", "frozen") / state).write_text(word)
    world.close()
    assert not process.alive
    assert groups_of(world.cgroup) == []


async def test_what_a_killed_owner_leaves_ends_at_once_or_is_swept():
    owner = await trio.lowlevel.open_process([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, cwd=ROOT)
    assert owner.stdout is not None
    told = b""
    while not told.endswith(b"\n"):
        told += await owner.stdout.receive_some()
    name, cgroup, pid = told.decode().split()
    inner = os.pidfd_open(int(pid))
    owner.kill()
    await owner.wait()
    await owner.stdout.aclose()
    with trio.fail_after(20):
        await trio.lowlevel.wait_readable(inner)  # its processes do not outlive it
    os.close(inner)
    assert name in map(str, worlds.HOME.iterdir())
    worlds.sweep()
    assert name not in map(str, worlds.HOME.iterdir())
    assert groups_of(cgroup) == []


def test_the_sweep_leaves_the_living_alone(world: World):
    worlds.sweep()
    assert world.folder.exists()
    assert len(groups_of(world.cgroup)) == len(cgroups.folders(world.cgroup))


def test_who_is_not_root_is_told_so():
    text = "import os; from tests.e2e.world import World; os.seteuid(65534); World()"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"{NotHere.__name__}: a real node needs namespaces, mounts and cgroups: run this as root" in done.stderr
