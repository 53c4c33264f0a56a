"""Resource renamed while held: the held id stays in the old one, is absent from the new one, and moves when free."""

from __future__ import annotations

import pytest

from reactor.simulate.node import GPU

SHARED = "nvidia.com/gpu.shared"


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_a_held_share_moves_when_its_pod_ends(flow, seen, autojump_clock, version):
    async with flow(version=version, replicas=2) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        ((_, held),) = seen.owned()
        node.share(2, rename=SHARED)
        await node.settle(60)
        assert node.listed() == {held: False}
        assert node.healthy(SHARED) == set(node.listed(SHARED)) == node.shares(0, 1, replicas=2) - {held}
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy(SHARED) == node.shares(0, 1, replicas=2), within=15)
        await node.settle(10)
        assert GPU not in node.state.kubelet.plugins
        assert node.kubelet.streams(GPU) == 0
        assert node.kubelet.core.manager.listed[GPU] == {}, "an empty list came before its server closed"


async def test_whole_ids_held_and_the_shares_under_another_name(flow, seen, autojump_clock):
    async with flow(numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        ((_, held),) = seen.owned()
        own = 0 if held == node.gpu(0) else 1
        node.share(2, rename=SHARED)
        await node.settle(60)
        assert node.listed() == {held: False}
        assert node.unhealthy(SHARED) == node.shares(own, replicas=2)
        assert node.healthy(SHARED) == node.shares(1 - own, replicas=2)
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy(SHARED) == node.shares(0, 1, replicas=2), within=15)


async def test_renamed_back_before_the_pod_ends(flow, seen, autojump_clock):
    async with flow(replicas=2) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        node.share(2, rename=SHARED)
        await node.settle(20)
        node.share(2)
        await node.settle(20)
        assert node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=2)
        assert SHARED not in node.state.kubelet.plugins


async def test_renamed_while_the_kubelet_restarts(flow, seen, autojump_clock):
    async with flow(numa=True, replicas=2) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        ((_, held),) = seen.owned()
        node.kubelet.kill()
        node.share(2, rename=SHARED)
        await node.settle(5)
        await node.kubelet.start()
        await node.settle(10)
        assert node.listed() == {held: False}
        assert node.healthy(SHARED) == node.shares(0, 1, replicas=2) - {held}
