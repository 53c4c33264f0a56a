"""Nodes of several products and of many GPUs: what the config names is what moves, whatever the peer makes of it."""

from __future__ import annotations

import pytest

from reactor.model.kubelet import Refusal
from reactor.simulate.node import GPU

MIXED = "4xH100+2xT4+2xL4"
"""Indices 0-3, 4-5, 6-7."""
BY_PRODUCT = """\
resources:
  gpus:
  - {pattern: '*H100*', name: h100}
  - {pattern: Tesla T4, name: t4}
  - {pattern: '*', name: rest}
"""


def whole(node, *indices: int) -> set[str]:
    return {node.gpu(index) for index in indices}


@pytest.mark.parametrize(("spec", "count"), [("8xA100", 8), ("16xH100", 16)])
async def test_every_gpu_of_a_large_node_is_served_shared_and_served_again(flow, seen, autojump_clock, spec, count):
    every = range(count)
    async with flow(gpus=spec) as node:
        assert node.healthy() == whole(node, *every)
        await node.kubelet.run_pod("a", {GPU: count // 2})
        await node.settle(2)
        held = set(node.kubelet.held(GPU))
        assert len(held) == count // 2
        node.share(4)
        await node.settle(20)
        free = [index for index in every if node.gpu(index) not in held]
        assert node.healthy() == node.shares(*free, replicas=4)
        node.kubelet.delete_pod("a")
        await node.settle(20)
        assert node.healthy() == set(node.listed()) == node.shares(*every, replicas=4)
        node.hardware.xid(count - 1, 79)
        await node.settle(1)
        assert node.unhealthy() == node.shares(count - 1, replicas=4)


async def test_each_product_has_the_name_that_its_pattern_gives(flow, autojump_clock):
    """The peer reads patterns and drops them."""
    async with flow(gpus=MIXED, config=BY_PRODUCT) as node:
        assert node.healthy("nvidia.com/h100") == whole(node, 0, 1, 2, 3)
        assert node.healthy("nvidia.com/t4") == whole(node, 4, 5)
        assert node.healthy("nvidia.com/rest") == whole(node, 6, 7)
        assert node.listed() == {}


async def test_of_one_product_some_are_shared_under_a_name_of_their_own(flow, seen, autojump_clock):
    """SHR-09, CFG-10: the peer drops renames and selectors."""
    entries = "{name: t4, devices: [4], replicas: 4}, {name: h100, devices: 2, rename: h100.small, replicas: 2}"
    more = f"sharing: {{timeSlicing: {{resources: [{entries}]}}}}\n"
    async with flow(gpus=MIXED, config=BY_PRODUCT) as node:
        node.edit_config(BY_PRODUCT + more)
        await node.settle(10)
        assert node.healthy("nvidia.com/t4") == {*node.shares(4, replicas=4), *whole(node, 5)}
        assert node.healthy("nvidia.com/h100") == whole(node, 2, 3)
        assert node.healthy("nvidia.com/h100.small") == node.shares(0, 1, replicas=2)
        assert node.healthy("nvidia.com/rest") == whole(node, 6, 7)
        assert seen.sent("nvidia.com/rest") == 1


async def test_one_gpu_is_chosen_by_its_uuid(flow, autojump_clock):
    async with flow(gpus="3xA100") as node:
        chosen = node.gpu(2)
        entry = f"{{name: gpu, rename: small, devices: [{chosen}], replicas: 2}}"
        node.edit_config(f"sharing: {{timeSlicing: {{resources: [{entry}]}}}}\n")
        await node.settle(10)
        assert node.healthy("nvidia.com/small") == node.shares(2, replicas=2)
        assert node.healthy() == whole(node, 0, 1)


async def test_a_product_that_no_pattern_names_is_unlisted_with_the_reason(flow, autojump_clock):
    async with flow(gpus="1xH100+1xT4", config="resources: {gpus: [{pattern: '*H100*', name: gpu}]}\n") as node:
        assert node.healthy() == whole(node, 0)
        assert list(node.state.plan.unlisted.values()) == ["no pattern of resources.gpus matches 'Tesla T4'"]


async def test_a_product_can_be_left_out_and_let_in_again(flow, seen, autojump_clock):
    async with flow(gpus=MIXED, config=BY_PRODUCT) as node:
        node.edit_config(BY_PRODUCT + "select: {exclude: {products: ['*T4']}}\n")
        await node.settle(10)
        assert node.listed("nvidia.com/t4") == {}
        node.edit_config(BY_PRODUCT)
        await node.settle(10)
        assert node.healthy("nvidia.com/t4") == whole(node, 4, 5)
        assert seen.sent("nvidia.com/h100") == seen.sent("nvidia.com/rest") == 1


async def test_a_card_of_another_uuid_is_served_and_the_old_id_is_refused(flow, seen, autojump_clock):
    """ALC-02: the node was moved, the kubelet may still ask with an id of before."""
    async with flow(gpus="2xH100") as node:
        old = node.gpu(0)
        node.hardware.swap(0)
        await node.settle(60)
        (new,) = node.healthy() - {node.gpu(1)}
        assert set(node.listed()) == {new, node.gpu(1)}
        refusal = node.desk.allocate(GPU, [[old]])
        assert isinstance(refusal, Refusal)
        assert refusal.message == f"unknown device {old}: nvidia.com/gpu does not list it (any more)"
        assert isinstance(node.desk.allocate(GPU, [[new]]), tuple)
        await node.settle(1)
        assert node.healthy() == {new, node.gpu(1)}
