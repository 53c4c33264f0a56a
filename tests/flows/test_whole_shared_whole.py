"""Whole -> shared -> whole with a pod holding: a GPU that a pod owns is never handed out under another identity.

Judged by the list and podresources, not by pods that are scheduled: the scheduler subtracts held requests once more.
"""

from __future__ import annotations

import pytest
import trio

from reactor.events import Refused
from reactor.simulate.kubelet.memory import Hold
from reactor.simulate.node import GPU

VERSIONS = pytest.mark.parametrize("version", ["1.29", "1.33", "1.34", "1.37"])


@VERSIONS
async def test_shares_of_a_gpu_that_a_pod_owns_wait_for_its_end(flow, seen, autojump_clock, version):
    async with flow(version=version) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        ((_, held),) = seen.owned()
        own, other = (0, 1) if held == node.gpu(0) else (1, 0)
        node.share(4)
        await node.settle()
        assert node.healthy() == node.shares(other, replicas=4), "the free GPU is shared at once"
        await node.settle(600)
        assert node.healthy() == node.shares(other, replicas=4)
        assert node.unhealthy() == node.shares(own, replicas=4) | {held}
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=4), within=10)
        assert seen.history(node.share_of(own, 0)) == "UH"
        assert node.state.holds == {}


@VERSIONS
async def test_a_whole_gpu_waits_for_the_last_of_its_shares(flow, seen, autojump_clock, version):
    async with flow(gpus="1xH100", version=version, replicas=2) as node:
        await node.kubelet.run_pod("a", {GPU: 1})
        await node.kubelet.run_pod("b", {GPU: 1})
        await node.settle(2)
        node.share(0)
        await node.settle(30)
        assert node.healthy() == set()
        assert node.unhealthy() == {node.gpu(0)} | node.shares(0, replicas=2)
        node.kubelet.delete_pod("a")
        await node.settle(20)
        assert node.healthy() == set()
        assert len(node.unhealthy()) == 2, "the share of a is gone"
        node.kubelet.delete_pod("b")
        await node.until(lambda: node.healthy() == set(node.listed()) == {node.gpu(0)}, within=10)


async def test_there_and_back_while_the_pod_runs(flow, seen, autojump_clock):
    async with flow(numa=True) as node:
        pod = await node.kubelet.run_pod("job", {GPU: 2})
        await node.settle(2)
        node.share(3)
        await node.settle(20)
        node.share(0)
        await node.settle(20)
        assert node.healthy() == set(node.listed()) == {node.gpu(0), node.gpu(1)}
        assert pod.phase == "Running"
        assert len(node.kubelet.held(GPU)) == 2


async def test_holds_allow_hands_out_at_once(flow, seen, autojump_clock):
    async with flow(gpus="1xH100") as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        node.share(2, more="holds: allow\n")
        await node.settle(1)
        assert node.healthy() == node.shares(0, replicas=2)
        assert node.unhealthy() == {node.gpu(0)}


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_an_allocate_in_flight_during_the_switch(flow, seen, autojump_clock, version, answered):
    """The kubelet has picked the whole GPU; its call arrives, or its answer, after the shares are planned."""
    async with flow(gpus="1xH100", version=version, numa=True) as node:
        node.kubelet.weather.hold = hold = Hold(answered=answered)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.kubelet.run_pod, "job", {GPU: 1})
            await hold.arrived.wait()
            node.share(2)
            await node.settle(3)
            hold.release()
        node.kubelet.weather.hold = None
        await node.settle(20)
        pod = node.kubelet.pod("job")
        if answered:
            assert pod.phase == "Running"
            assert node.unhealthy() == {node.gpu(0)} | node.shares(0, replicas=2)
            node.kubelet.delete_pod("job")
            await node.settle(20)
        else:
            assert pod.phase == "Failed"
            assert len(seen.of(Refused)) == 1
        assert node.healthy() == set(node.listed()) == node.shares(0, replicas=2)


async def test_an_allocate_that_takes_longer_than_the_drop_delay(flow, seen, autojump_clock):
    """Its answer is out: the id stays listed for as long as the kubelet has not shown what became of it."""
    async with flow(gpus="1xH100", numa=True) as node:
        node.kubelet.weather.hold = hold = Hold(answered=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.kubelet.run_pod, "job", {GPU: 1})
            await hold.arrived.wait()
            node.share(2)
            await node.settle(8)
            hold.release()
        node.kubelet.weather.hold = None
        await node.settle(5)
        assert node.kubelet.pod("job").phase == "Running"
        assert node.gpu(0) in node.unhealthy()


async def test_a_share_is_refused_in_the_moment_after_the_whole_gpu_was_granted(flow, seen, autojump_clock):
    """The grant is not folded in yet; the desk itself keeps the other identity back."""
    async with flow(gpus="1xH100") as node:
        node.share(2)
        granted = node.desk.allocate(GPU, [[node.gpu(0)]])
        assert not hasattr(granted, "message")
        refused = node.desk.allocate(GPU, [[node.share_of(0, 0)]])
        assert hasattr(refused, "message")
        await node.settle(30)
        assert node.healthy() == node.shares(0, replicas=2), "nobody has it: the grant was never shown"
