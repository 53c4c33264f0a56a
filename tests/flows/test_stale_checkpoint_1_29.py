"""A kubelet 1.29 frees at its next Allocate only: its checkpoint stays stale, so the pod's going is what counts."""

from __future__ import annotations

from reactor.simulate.node import GPU


async def test_the_hold_ends_although_the_checkpoint_never_changes(flow, seen, autojump_clock):
    async with flow(version="1.29") as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        ((_, held),) = seen.owned()
        node.share(2)
        await node.settle(10)
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=2), within=10)
        checkpoint = node.kubelet.checkpoint()
        assert checkpoint is not None
        assert held.encode() in checkpoint, "the kubelet itself has not noticed"
        await node.settle(600)
        assert node.state.holds == {}
        assert node.healthy() == node.shares(0, 1, replicas=2)


async def test_the_stale_entry_revives_nothing_after_an_agents_restart(flow, seen, autojump_clock):
    async with flow(version="1.29") as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        node.share(2)
        await node.settle(10)
        node.kubelet.delete_pod("job")
        await node.settle(10)
        await node.kill_agent()
        await node.start_agent()
        await node.settle(1)
        assert node.healthy() == node.shares(0, 1, replicas=2)
        await node.settle(60)
        assert node.healthy() == node.shares(0, 1, replicas=2)
        assert node.state.holds == {}


async def test_the_next_pod_may_have_the_freed_gpu(flow, seen, autojump_clock):
    async with flow(version="1.29", gpus="1xH100") as node:
        await node.kubelet.run_pod("a", {GPU: 1})
        await node.settle(2)
        node.share(2)
        await node.settle(10)
        node.kubelet.delete_pod("a")
        await node.settle(10)
        pod = await node.kubelet.run_pod("b", {GPU: 1})
        assert pod.phase == "Running"
        await node.settle(5)
        assert {key.id for key in node.state.holds} == {one for _, one in seen.owned()}


async def test_a_pod_that_finished_but_is_still_there_counts_until_it_goes(flow, seen, autojump_clock):
    """Up to 1.33 List shows pods that are over; their ids are freed with the next Allocate."""
    async with flow(version="1.29") as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        node.share(2)
        await node.settle(10)
        node.kubelet.end_pod("job")
        await node.settle(60)
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == node.shares(0, 1, replicas=2), within=40)
