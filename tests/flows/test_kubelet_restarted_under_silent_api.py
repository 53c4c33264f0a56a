"""Kubelet restarted under a silent API server: List is empty for a while, which frees nobody.

With a topology policy and NUMA nodes, an id that is missing when its pod is admitted again ends a kubelet from 1.34 on.
"""

from __future__ import annotations

import pytest
import trio

from reactor.simulate.node import GPU

VERSIONS = pytest.mark.parametrize("version", ["1.33", "1.34", "1.36", "1.37"])


@VERSIONS
@pytest.mark.parametrize("silent_for", [5, 120])
async def test_held_ids_beyond_the_plan_stay_through_the_silence(flow, seen, autojump_clock, version, silent_for):
    async with flow(version=version, numa=True) as node:
        pod = await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        node.share(2)
        await node.settle(10)
        await node.kubelet.restart(1.0, api_silent=True)
        await node.settle(silent_for)
        assert held in node.unhealthy()
        await node.kubelet.api_answers()
        await node.settle(30)
        assert pod.phase == "Running"
        assert held in node.unhealthy()
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == node.shares(0, 1, replicas=2), within=40)


@VERSIONS
async def test_the_config_is_edited_during_the_silence(flow, seen, autojump_clock, version):
    async with flow(version=version, numa=True) as node:
        pod = await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        await node.kubelet.restart(1.0, api_silent=True)
        await node.settle(5)
        node.share(2)
        await node.settle(60)
        assert held in node.unhealthy()
        await node.kubelet.api_answers()
        await node.settle(10)
        assert pod.phase == "Running"


@VERSIONS
async def test_the_gpu_vanishes_during_the_silence(flow, seen, autojump_clock, version):
    async with flow(version=version, numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 2})
        await node.settle(3)
        await node.kubelet.restart(1.0, api_silent=True)
        await node.settle(5)
        node.hardware.unplug(1)
        await node.settle(60)
        assert node.unhealthy() == {node.gpu(1)}
        await node.kubelet.api_answers()
        await node.settle(10)
        assert node.kubelet.pod("job").phase == "Running"


@VERSIONS
async def test_the_agent_is_killed_at_the_same_time(flow, seen, autojump_clock, version):
    """What it knows is its own state file and the kubelet's checkpoint."""
    async with flow(version=version, numa=True) as node:
        pod = await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        await node.kill_agent()
        node.kubelet.kill()
        node.share(2)
        await trio.sleep(5)
        await node.kubelet.start(api_silent=True)
        await node.start_agent()
        await node.settle(60)
        assert held in seen.first(GPU, life=2).ids
        assert held in node.unhealthy()
        await node.kubelet.api_answers()
        await node.settle(10)
        assert pod.phase == "Running"


@VERSIONS
async def test_the_agents_state_is_lost_as_well(flow, seen, autojump_clock, version):
    """The checkpoint alone knows of the pod."""
    async with flow(version=version, numa=True) as node:
        pod = await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        await node.kill_agent()
        node.disk = None
        node.kubelet.kill()
        node.share(2)
        await trio.sleep(5)
        await node.kubelet.start(api_silent=True)
        await node.start_agent()
        await node.settle(60)
        await node.kubelet.api_answers()
        await node.settle(10)
        assert pod.phase == "Running"
        assert held in node.unhealthy()


@VERSIONS
async def test_the_checkpoint_is_lost(flow, seen, autojump_clock, version):
    """The kubelet thinks that the device is free while the pod runs on; the hold ends with its pod alone."""
    async with flow(version=version, numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        node.share(2)
        await node.settle(10)
        await node.kubelet.restart(1.0, api_silent=True, keep_checkpoint=False)
        await node.settle(60)
        assert held in node.unhealthy()
        await node.kubelet.api_answers()
        await node.settle(120)
        assert held in node.unhealthy()
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == node.shares(0, 1, replicas=2), within=60)


@VERSIONS
async def test_the_pod_is_deleted_during_the_silence(flow, seen, autojump_clock, version):
    """Nobody can tell that it is gone before the API server answers; then its hold ends."""
    async with flow(version=version, numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(3)
        node.share(2)
        await node.settle(10)
        await node.kubelet.restart(1.0, api_silent=True)
        await node.settle(5)
        node.kubelet.delete_pod("job")
        await node.settle(30)
        await node.kubelet.api_answers()
        await node.kubelet.run_pod("other", {GPU: 1})
        await node.until(lambda: node.unhealthy() == set(), within=60)
        assert node.healthy() == node.shares(0, 1, replicas=2)


@VERSIONS
async def test_a_pod_that_comes_after_the_checkpoint_was_lost_gets_another_gpu(flow, seen, autojump_clock, version):
    """The kubelet would give it the one that is in use: by its new books every device is free."""
    async with flow(version=version) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(3)
        before = seen.owned()
        await node.kubelet.restart(1.0, keep_checkpoint=False)
        await node.until(lambda: len(node.healthy()) == 2, within=1)
        await node.kubelet.run_pod("other", {GPU: 1})
        assert len(seen.owned() | before) == 2
        await node.settle(60)
        assert len(node.healthy()) == 2
