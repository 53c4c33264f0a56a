"""GPU lost, vanished, back: marked at once, kept while held, healthy again on evidence only."""

from __future__ import annotations

from reactor.simulate.node import GPU


async def test_a_lost_gpu_is_marked_by_the_next_scan_and_stays_listed(flow, seen, autojump_clock):
    """HLT-05: the driver still answers some questions from memory."""
    async with flow(replicas=2) as node:
        node.hardware.lose(0, xid=79)
        await node.settle(300)
        assert node.unhealthy() == node.shares(0, replicas=2)
        assert node.healthy() == node.shares(1, replicas=2)
        assert seen.history(node.share_of(0, 0)) == "HU"
        reasons = {condition.reason for condition in node.state.conditions[node.gpu(0)]}
        assert reasons == {"xid", "lost"}


async def test_a_gpu_lost_without_a_word_is_found_by_the_periodic_scan_and_heals_when_it_answers(
    flow, seen, autojump_clock
):
    """HLT-21"""
    async with flow() as node:
        node.hardware.lose(0)
        await node.settle(35)
        assert node.unhealthy() == {node.gpu(0)}
        node.hardware.find(0)
        await node.until(lambda: not node.unhealthy(), within=12)
        assert seen.history(node.gpu(0)) == "HUH"


async def test_a_gpu_that_vanishes_leaves_the_list_after_it_was_seen_unhealthy(flow, seen, autojump_clock):
    """HLT-21"""
    async with flow() as node:
        node.hardware.unplug(0)
        await node.settle(1)
        assert node.unhealthy() == {node.gpu(0)}
        assert node.healthy() == {node.gpu(1)}
        await node.settle(10)
        assert set(node.listed()) == {node.gpu(1)}
        node.hardware.plug(0)
        await node.until(lambda: node.healthy() == {node.gpu(0), node.gpu(1)}, within=20)
        assert seen.history(node.gpu(0)) == "HUH"
        assert node.state.conditions == {}


async def test_a_gpu_that_vanishes_under_a_pod_stays_listed_until_the_pod_ends(flow, seen, autojump_clock):
    async with flow(numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 2})
        await node.settle(2)
        node.hardware.unplug(1)
        await node.settle(120)
        assert node.listed() == {node.gpu(0): True, node.gpu(1): False}
        await node.kubelet.restart(0.2)
        await node.settle(30)
        assert node.listed() == {node.gpu(0): True, node.gpu(1): False}
        node.kubelet.delete_pod("job")
        await node.settle(20)
        assert set(node.listed()) == {node.gpu(0)}


async def test_a_gpu_that_comes_back_under_its_pod_is_the_same_id(flow, seen, autojump_clock):
    async with flow() as node:
        await node.kubelet.run_pod("job", {GPU: 2})
        await node.settle(2)
        node.hardware.unplug(1)
        await node.settle(30)
        node.hardware.plug(1)
        await node.until(lambda: not node.unhealthy(), within=20)
        assert seen.history(node.gpu(1)) == "HUH"


async def test_another_gpu_in_its_place_is_another_id(flow, seen, autojump_clock):
    async with flow() as node:
        node.hardware.xid(0, 54)
        await node.settle(1)
        node.hardware.unplug(0)
        await node.settle(10)
        new = node.hardware.swap(0).uuid
        await node.settle(10)
        assert node.healthy() == {new, node.gpu(1)}
        assert node.state.conditions == {}


async def test_each_return_from_the_bus_counts_as_a_relapse(flow, seen, autojump_clock):
    async with flow() as node:
        for _ in range(3):
            node.hardware.lose(0)
            await node.settle(40)
            node.hardware.find(0)
            await node.settle(40)
        assert node.unhealthy() == set()
        node.hardware.lose(0)
        await node.settle(40)
        node.hardware.find(0)
        await node.settle(3600)
        assert node.unhealthy() == {node.gpu(0)}
        assert seen.history(node.gpu(0)) == "HU" * 4


async def test_all_gpus_gone_is_a_normal_state(flow, seen, autojump_clock):
    async with flow() as node:
        node.hardware.unplug(0)
        node.hardware.unplug(1)
        await node.settle(30)
        assert node.listed() == {}
        assert node.running
        node.hardware.plug(0)
        node.hardware.plug(1)
        await node.until(lambda: node.healthy() == {node.gpu(0), node.gpu(1)}, within=20)
