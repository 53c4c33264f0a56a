"""The witness of the flows sees what it is there to see: careless lists are put past the agent's own rules."""

from __future__ import annotations

import pytest

from reactor.model.snapshot import Offer, Snapshot
from reactor.model.value import replace
from reactor.simulate.node import GPU, SimNode


def careless(node: SimNode, offer: Offer) -> None:
    node.desk.post(replace(node.desk.snapshot, offers={GPU: offer}))


def without(snapshot: Snapshot, one: str) -> Offer:
    offer = snapshot.offers[GPU]
    return replace(offer, groups=tuple(group for group in offer.groups if group[0].id != one))


@pytest.fixture
def caught(seen):
    """What was seen broken; the flow's own verdict is spared it."""

    def take() -> str:
        found = "; ".join(seen.broken)
        seen.broken.clear()
        return found

    return take


async def test_an_id_that_was_healthy_a_moment_ago_is_dropped(flow, caught, autojump_clock):
    async with flow() as node:
        careless(node, without(node.desk.snapshot, node.gpu(0)))
        await node.settle()
        assert "left nvidia.com/gpu after nothing" in caught()


async def test_an_id_that_a_pod_holds_is_dropped(flow, caught, autojump_clock):
    async with flow(gpus="1xH100") as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        careless(node, without(node.desk.snapshot, node.gpu(0)))
        await node.settle()
        assert "is held and not in the list" in caught()


async def test_a_list_is_sent_again_for_nothing(flow, seen, autojump_clock):
    async with flow() as node:
        careless(node, replace(node.desk.snapshot.offers[GPU], nudge=1))
        await node.settle()
        assert (seen.again, seen.nudges) == (1, 0)
        seen.again = 0


async def test_a_gpu_is_with_pods_under_two_identities(flow, caught, autojump_clock):
    async with flow(gpus="1xH100") as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        node.share(2, more="holds: allow\n")
        await node.settle(1)
        await node.kubelet.run_pod("other", {GPU: 1})
        node.share(3, more="holds: allow\n")
        await node.settle(1)
        assert "two identities" in caught()
