"""Init container holding more than its pod: its ids are in no List, and the checkpoint has them as long as the pod."""

from __future__ import annotations

import pytest

from reactor.simulate.node import GPU


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.34", "1.37"])
async def test_the_ids_of_init_and_app_stay_held_until_the_pod_ends(flow, seen, autojump_clock, version):
    async with flow(gpus="4xH100", version=version, numa=True) as node:
        pod = await node.kubelet.run_pod("job", {GPU: 1}, init={GPU: 2})
        assert pod.phase == "Running"
        held = {one for _, one in seen.owned()}
        assert len(held) == 2
        await node.settle(60)
        assert {key.id for key in node.state.holds} == held
        node.share(2)
        await node.settle(120)
        assert node.unhealthy() >= held
        assert len(node.healthy()) == 4
        assert {key.id for key in node.state.holds} == held
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == node.shares(0, 1, 2, 3, replicas=2), within=20)
        assert node.state.holds == {}


async def test_the_ids_stay_held_over_a_restart_of_the_agent(flow, seen, autojump_clock):
    async with flow(gpus="4xH100", numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1}, init={GPU: 2})
        held = {one for _, one in seen.owned()}
        await node.settle(5)
        node.share(2)
        await node.settle(10)
        await node.kill_agent()
        await node.start_agent()
        await node.settle(60)
        assert node.unhealthy() >= held
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == node.shares(0, 1, 2, 3, replicas=2), within=20)


async def test_a_kubelet_that_restarts_ends_such_a_pod_itself_and_its_ids_are_free(flow, seen, autojump_clock):
    """Its init container does not run any more, so it is admitted like a new one, before any plugin is back."""
    async with flow(gpus="4xH100", numa=True) as node:
        pod = await node.kubelet.run_pod("job", {GPU: 1}, init={GPU: 2})
        await node.settle(5)
        node.share(2)
        await node.settle(10)
        await node.kubelet.restart(1.0)
        assert pod.phase == "Failed"
        await node.until(lambda: node.healthy() == node.shares(0, 1, 2, 3, replicas=2), within=20)
