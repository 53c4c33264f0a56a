"""Which GPUs are listed at all."""

from __future__ import annotations

import pytest

from reactor.model.config import Config, ResourcePattern, Select, Selection
from reactor.model.ids import GpuUuid, PciAddress, ResourceName
from reactor.plan import make_plan
from tests.test_plan import GPU, gpu, listed

H100 = "NVIDIA H100 80GB HBM3"
NODE = [gpu(0), gpu(1), gpu(2, "Tesla T4"), gpu(3, "Tesla T4")]


def selecting(include: Selection | None = None, exclude: Selection | None = None, **more: object) -> Config:
    return Config(select=Select(include=include, exclude=exclude), **more)


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (Selection(indices=frozenset({1})), "index 1"),
        (Selection(uuids=frozenset({NODE[1].uuid})), "its UUID"),
        (Selection(pci=frozenset({NODE[1].pci})), f"PCI address {NODE[1].pci}"),
    ],
)
def test_a_gpu_is_excluded_by_any_of_its_names(selection, reason):
    plan = make_plan(selecting(exclude=selection), NODE)
    assert listed(plan) == {GPU: {0: 0, 2: 0, 3: 0}}
    assert plan.unlisted == {NODE[1].uuid: f"select.exclude names it ({reason})"}
    assert plan.notices == ()


def test_a_product_is_excluded_by_its_pattern():
    plan = make_plan(selecting(exclude=Selection(products=("*T4",))), NODE)
    assert listed(plan) == {GPU: {0: 0, 1: 0}}
    assert set(plan.unlisted.values()) == {"select.exclude names it (Tesla T4 matches '*T4')"}


def test_only_what_is_included_is_listed_and_exclude_goes_before():
    both = selecting(include=Selection(products=("*H100*",)), exclude=Selection(indices=frozenset({0})))
    plan = make_plan(both, NODE)
    assert listed(plan) == {GPU: {1: 0}}
    assert plan.unlisted[NODE[2].uuid] == "select.include does not name it"
    assert plan.unlisted[NODE[0].uuid] == "select.exclude names it (index 0)"


def test_an_excluded_gpu_does_not_count_among_the_first():
    """devices: N is N of those that are listed."""
    gpus = (ResourcePattern(pattern="*", name=ResourceName("nvidia.com/gpu")),)
    plan = make_plan(selecting(exclude=Selection(indices=frozenset({0})), gpus=gpus), NODE)
    assert min(plan.resources[0].groups, key=lambda group: group.gpu).gpu == NODE[1].uuid


def test_names_that_this_node_does_not_have_are_told_of():
    nobody = Selection(
        indices=frozenset({9, 8}),
        uuids=frozenset({GpuUuid("GPU-x")}),
        pci=frozenset({PciAddress("0000:ff:00.0")}),
        products=("*B200*",),
    )
    assert make_plan(selecting(exclude=nobody), NODE).notices == (
        "select.exclude.indices: this node has no GPU 8, 9",
        "select.exclude.uuids: this node has no GPU GPU-x",
        "select.exclude.pci: this node has no GPU 0000:ff:00.0",
        "select.exclude.products: this node has no GPU *B200*",
    )
