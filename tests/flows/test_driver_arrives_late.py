"""Driver late, gone, upgraded: no GPUs is a normal state, and the agent waits."""

from __future__ import annotations

import pytest

from reactor.model.gpu import DriverState
from reactor.simulate.node import GPU
from reactor.simulate.nvml import codes


@pytest.mark.parametrize("away", [codes.ABSENT, codes.UNLOADED])
async def test_a_driver_that_comes_after_two_minutes_is_found_within_one_cycle(flow, seen, log, autojump_clock, away):
    """DRV-01"""
    async with flow(started=False) as node:
        node.hardware.set_driver(away)
        await node.kubelet.start()
        await node.start_agent()
        await node.settle(120)
        assert node.state.driver.state is DriverState.ABSENT
        assert node.state.faults.keys() <= {"checkpoint"}
        assert node.kubelet.node() == {}
        node.hardware.set_driver(codes.READY)
        await node.until(lambda: node.healthy() == {node.gpu(0), node.gpu(1)}, within=2.5)
        assert seen.sent(GPU) == 1


async def test_the_only_gpu_appears_after_the_start(flow, seen, autojump_clock):
    """HOT-03"""
    async with flow(gpus="1xH100", started=False) as node:
        node.hardware.unplug(0)
        await node.kubelet.start()
        await node.start_agent()
        await node.settle(20)
        assert node.listed() == {}
        node.hardware.plug(0)
        await node.until(lambda: node.healthy() == {node.gpu(0)}, within=31)


async def test_a_driver_that_leaves_and_comes_back_newer(flow, seen, autojump_clock):
    """DRV-05"""
    async with flow(replicas=2) as node:
        node.hardware.set_driver(codes.UNLOADED)
        await node.until(lambda: node.unhealthy() == node.shares(0, 1, replicas=2), within=35)
        await node.settle(60)
        assert node.listed() == {}
        node.hardware.set_driver(codes.READY, "590.10.01")
        await node.until(lambda: node.healthy() == node.shares(0, 1, replicas=2), within=5)
        driver = node.state.driver.driver
        assert driver is not None
        assert driver.version == "590.10.01"
        assert seen.history(node.share_of(0, 0)) == "HUH"


async def test_a_driver_that_leaves_under_a_pod_leaves_the_held_id_listed(flow, seen, autojump_clock):
    async with flow(numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        (held,) = {one for _, one in seen.owned()}
        node.hardware.set_driver(codes.UNLOADED)
        await node.settle(60)
        assert node.listed() == {held: False}
        node.hardware.set_driver(codes.READY)
        await node.until(lambda: node.healthy() == {node.gpu(0), node.gpu(1)}, within=5)
        assert seen.history(held) == "HUH"


async def test_a_rebound_driver_lifts_what_wanted_a_reset(flow, seen, autojump_clock):
    async with flow() as node:
        node.hardware.xid(0, 119)
        await node.settle(40)
        node.hardware.set_driver(codes.UNLOADED)
        await node.settle(40)
        node.hardware.set_driver(codes.READY)
        await node.settle(10)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}


async def test_a_library_that_does_not_match_the_module_withdraws_until_they_agree(flow, seen, autojump_clock):
    async with flow(started=False) as node:
        node.hardware.set_driver(codes.MISMATCH)
        await node.kubelet.start()
        await node.start_agent()
        await node.settle(60)
        assert node.listed() == {}
        assert "driver" in node.state.faults
        node.hardware.set_driver(codes.READY)
        await node.until(lambda: node.healthy() == {node.gpu(0), node.gpu(1)}, within=5)
        assert "driver" not in node.state.faults


async def test_a_gpu_that_was_away_at_the_start_is_listed_when_it_comes(flow, seen, autojump_clock):
    """HOT-01: removed from the bus before the start, brought back by a rescan of it."""
    async with flow(started=False) as node:
        node.hardware.unplug(1)
        await node.kubelet.start()
        await node.start_agent()
        await node.settle(10)
        assert node.healthy() == set(node.listed()) == {node.gpu(0)}
        node.hardware.plug(1)
        await node.until(lambda: node.healthy() == {node.gpu(0), node.gpu(1)})
        assert seen.sent(GPU) == 2
