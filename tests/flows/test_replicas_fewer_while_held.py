"""Fewer replicas while held: the surviving ids stay as they are, the held ones beyond stay Unhealthy until free."""

from __future__ import annotations

import pytest

from reactor.simulate.node import GPU


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_held_shares_beyond_the_new_number_stay_until_released(flow, seen, autojump_clock, version):
    """SHR-07"""
    async with flow(gpus="1xH100", version=version, replicas=4) as node:
        for name in "abcd":
            await node.kubelet.run_pod(name, {GPU: 1})
        await node.settle(2)
        holders = {
            one: pod.ref.name
            for pod in node.kubelet.api.pods.values()
            for _, one, _ in next(each for each in node.kubelet.list_pods() if each.pod == pod.ref).devices
        }
        for number in (0, 1):
            node.kubelet.delete_pod(holders[node.share_of(0, number)])
        node.share(2)
        await node.settle(60)
        assert node.healthy() == node.shares(0, replicas=2)
        assert node.unhealthy() == {node.share_of(0, 2), node.share_of(0, 3)}
        assert seen.history(node.share_of(0, 0)) == seen.history(node.share_of(0, 1)) == "H"
        node.kubelet.delete_pod(holders[node.share_of(0, 2)])
        await node.until(lambda: node.unhealthy() == {node.share_of(0, 3)}, within=15)
        node.kubelet.delete_pod(holders[node.share_of(0, 3)])
        await node.until(lambda: node.unhealthy() == set(), within=15)


async def test_more_again_before_they_are_released(flow, seen, autojump_clock):
    async with flow(gpus="1xH100", replicas=4) as node:
        for name in "abcd":
            await node.kubelet.run_pod(name, {GPU: 1})
        await node.settle(2)
        node.share(2)
        await node.settle(20)
        node.share(4)
        await node.settle(20)
        assert node.healthy() == node.shares(0, replicas=4)
        assert seen.history(node.share_of(0, 3)) == "HUH"


async def test_fewer_in_a_row(flow, seen, autojump_clock):
    async with flow(gpus="1xH100", numa=True, replicas=8) as node:
        await node.kubelet.run_pod("job", {GPU: 8})
        await node.settle(2)
        for replicas in (6, 4, 3, 2):
            node.share(replicas)
            await node.settle(7)
            assert node.healthy() == node.shares(0, replicas=replicas)
            assert len(node.listed()) == 8
