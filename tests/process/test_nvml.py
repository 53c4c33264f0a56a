"""The NVML worker of the real process: hung, stopped, killed, on another library. Serving goes on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio

from tests.process.agent import Agent, Child
from tests.process.node import GPU, Node
from tests.process.story import soon

STUB = Path(__file__).parents[1] / "nvml" / "stub.c"
COMPILER = shutil.which("cc")
SCAN_DEADLINE = 5.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def get(port: int, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode().strip()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode().strip()

    await soon(lambda: listens(port), "probes answered")
    return await trio.to_thread.run_sync(ask)


def worker_of(agent: Agent) -> int:
    pid = agent.log.of("worker.started")[-1]["pid"]
    assert isinstance(pid, int)
    return pid


# ---------------------------------------------------------------- hanging


async def test_it_is_alive_and_not_ready_while_nvml_never_answered(node: Node) -> None:
    """OBS-04, NVM-02"""
    port = free_port()
    hang = node.gpus.hang("nvmlInitWithFlags")
    agent = await node.start(probe_listen=f"127.0.0.1:{port}")
    await soon(lambda: hang.met > 0)
    await agent.log.until("config.read")
    assert await get(port, "/healthz") == (200, "ok")
    status, why = await get(port, "/readyz")
    assert (status, "NVML has not been asked yet" in why) == (503, True)
    hang.release()
    await node.seen.until("listed", resource=GPU, healthy=2)
    await agent.settled()
    assert await get(port, "/readyz") == (200, "ok")


async def test_a_gpu_whose_calls_hang_is_marked_and_nothing_else_is(node: Node) -> None:
    """OBS-04, NVM-02: the worker is replaced at its deadline, Allocate and the probes answer all the time."""
    port = free_port()
    agent = await node.start(probe_listen=f"127.0.0.1:{port}")
    await node.seen.until("listed", resource=GPU, healthy=2)
    await agent.settled()
    old = Child(worker_of(agent))
    hang = node.gpus.hang("nvmlDeviceGetUUID", 1)
    agent.send(signal.SIGHUP)
    await soon(lambda: hang.met > 0)
    assert await node.allocate("meanwhile", 1) == ""
    assert await get(port, "/healthz") == (200, "ok")
    assert await get(port, "/readyz") == (200, "ok")
    lost = await agent.log.until("worker.lost")
    assert (lost["hung"], lost["index"]) == (True, 1)
    await old.gone()
    await node.seen.until("listed", resource=GPU, healthy=1, unhealthy=1)
    assert (await node.kubelet.devices(GPU))[node.gpus.gpus[0].uuid] is True
    assert await get(port, "/readyz") == (200, "ok")
    assert node.seen.of("stream.ended") == []


# ---------------------------------------------------------------- dying


async def test_a_killed_worker_is_replaced_and_no_list_changes(node: Node) -> None:
    agent = await node.settled()
    old = node.watches()
    os.kill(worker_of(agent), signal.SIGKILL)
    await agent.log.until("worker.lost", hung=False)
    await agent.log.until("worker.started", count=2)
    await soon(lambda: bool(node.watches() - old), "a new watch")
    node.gpus.xid(0, 79)
    await node.seen.until("listed", resource=GPU, healthy=1, unhealthy=1)
    assert len(node.seen.of("listed")) == 2, "no list between"
    await agent.log.until("gpu.condemned")
    assert len(agent.log.of("gpu.condemned")) == 1
    assert node.seen.of("stream.ended") == []


async def test_a_stopped_worker_is_replaced_at_the_deadline_of_a_scan(node: Node) -> None:
    agent = await node.settled()
    old, watches = Child(worker_of(agent)), node.watches()
    os.kill(old.pid, signal.SIGSTOP)
    agent.send(signal.SIGHUP)
    assert await node.allocate("meanwhile", 1) == ""
    begun = trio.current_time()
    await agent.log.until("worker.lost", hung=True)
    await agent.log.until("worker.started", count=2)
    assert trio.current_time() - begun < SCAN_DEADLINE + 2
    await old.gone()
    await soon(lambda: bool(node.watches() - watches), "a new watch")
    node.gpus.xid(0, 79)
    await node.seen.until("listed", resource=GPU, healthy=1, unhealthy=1)
    assert len(node.seen.of("listed")) == 2, "no list between"


# ---------------------------------------------------------------- another library


async def test_ld_library_path_points_the_worker_at_another_library(node: Node, root: Path) -> None:
    if COMPILER is None:
        pytest.skip("needs cc, to build a libnvidia-ml.so.1")
    library = root / "libnvidia-ml.so.1"
    command = [COMPILER, "-shared", "-fPIC", "-w", '-DVERSION="550.1"', "-o", str(library), str(STUB)]
    await trio.run_process(command)
    agent = await node.start(simulate_nvml=None, environment={"LD_LIBRARY_PATH": str(root)})
    found = await agent.log.until("driver.found")
    assert found["driver"] == "550.1"
    assert (await agent.log.until("gpu.added"))["product"] == "Stub GPU"
    assert agent.log.of("agent.started", simulated=False)
    await agent.log.until("xid.reported", xid=79)
    await node.seen.until("listed", resource=GPU, healthy=0, unhealthy=1)
    state = await agent.state()
    assert (state["agent"]["simulated"], state["driver"]["version"]) == (False, "550.1")


async def test_without_any_library_it_waits_for_the_driver(node: Node, root: Path) -> None:
    """No GPU is a normal state: the agent lives, says what is missing, and is unready only as the config asks."""
    agent = await node.start(simulate_nvml=None, environment={"LD_LIBRARY_PATH": str(root)})
    failed = await agent.log.until("inventory.failed")
    assert failed["state"] == "absent"
    assert "libnvidia-ml.so.1" in str(failed["error"])
    await agent.log.until("config.read")
    (why,) = (await agent.state())["agent"]["unready"]
    assert "failOnInitError is true" in why
    node.config.write_text("version: v1\nflags: {failOnInitError: false}\n")
    await agent.log.until("config.read", count=2)
    assert (await agent.state())["agent"]["ready"] is True
