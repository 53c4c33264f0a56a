"""Worker dies: another takes its place, and neither lists nor events are lost. With the real process, in real time."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from reactor.events import WorkerLost, WorkerStarted
from reactor.nvml import NvmlClient
from reactor.simulate.node import GPU
from reactor.simulate.nvml.hardware import Hardware
from reactor.simulate.nvml.host import Host

Factory = Callable[[Hardware], NvmlClient]


@pytest.fixture
async def worker(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Factory]:
    """Makes the client of a real worker; the hardware stays in this process."""

    def client(hardware: Hardware) -> NvmlClient:
        host = Host(hardware, tmp_path / "gpus.sock")
        nursery.start_soon(partial(host.run))
        return NvmlClient(provider=host.provider, dev_root=tmp_path, sys_root=tmp_path / "sys")

    yield client
    nursery.cancel_scope.cancel()


async def test_a_killed_worker_is_replaced_and_no_list_is_sent(flow, seen, worker):
    async with flow(nvml=worker) as node:
        await node.until(lambda: len(node.healthy()) == 2 and bool(seen.of(WorkerStarted)), within=10)
        os.kill(seen.of(WorkerStarted)[-1].pid, signal.SIGKILL)
        await node.until(lambda: len(seen.of(WorkerStarted)) == 2, within=10)
        assert [fact.hung for fact in seen.of(WorkerLost)] == [False]
        scanned = node.state.scanned_at
        await node.until(lambda: node.state.scanned_at != scanned, within=10)
        node.hardware.xid(0, 79)
        await node.until(lambda: node.unhealthy() == {node.gpu(0)}, within=10)
        assert seen.sent(GPU) == 2
