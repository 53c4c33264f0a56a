"""The topology table of spec/kubelet.md 12, and what alignment does to the choice (row 33)."""

from __future__ import annotations

import pytest

from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.plugin import Device, Options
from reactor.simulate.kubelet.pods import Phase
from reactor.simulate.kubelet.topology import Policy
from tests.simulate.kubelet.bench import GPU, Bench, Plugin, container, on

BEST, RESTRICTED, SINGLE = Policy.BEST_EFFORT, Policy.RESTRICTED, Policy.SINGLE
ANYWHERE = [Device("a"), Device("b")]
MINUS = on(-1, "a", "b")
UNKNOWN = on(7, "a", "b")
HALF = [*on(0, "a"), Device("b")]
BOTH = [Device("a", numa=(0, 1)), Device("b", numa=(0, 1))]
SPLIT = [*on(0, "a"), *on(1, "b")]


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.36"])
@pytest.mark.parametrize(
    ("devices", "wanted", "refusing"),
    [
        (ANYWHERE, 2, ()),
        (MINUS, 1, (RESTRICTED, SINGLE)),
        (UNKNOWN, 1, (RESTRICTED, SINGLE)),
        (HALF, 1, ()),
        (HALF, 2, (RESTRICTED, SINGLE)),
        (BOTH, 2, ()),
        (SPLIT, 2, (SINGLE,)),
    ],
)
@pytest.mark.parametrize("policy", [BEST, RESTRICTED, SINGLE])
async def test_which_lists_a_policy_refuses(version, devices, wanted, refusing, policy):
    bench = await Bench(version, policy=policy).up()
    bench.serve(*devices)
    pod = await bench.run("p", wanted)
    if policy in refusing:
        assert (pod.phase, pod.reason) == (Phase.FAILED, "TopologyAffinityError")
        assert pod.message == "Pod was rejected: Resources cannot be allocated with Topology locality"
    else:
        assert pod.phase is Phase.RUNNING
        assert len(bench.ids(pod)) == wanted


async def test_one_of_two_nodes_is_filled_before_the_other():
    bench = await Bench(policy=BEST, numa=2).up()
    bench.serve(*on(0, "a0", "b0"), *on(1, "a1", "b1"))
    first, second = await bench.run("p", 2), await bench.run("q", 2)
    assert {frozenset(bench.ids(first)), frozenset(bench.ids(second))} == {
        frozenset({"a0", "b0"}),
        frozenset({"a1", "b1"}),
    }


async def test_the_plugin_chooses_within_the_aligned_set_when_that_is_larger_than_the_need():
    bench = await Bench(policy=BEST).up()
    plugin = Plugin(Options(preferred=True), prefer=lambda available, must, size: ["c0", "a1"])
    bench.serve(*on(0, "a0", "b0", "c0"), *on(1, "a1"), plugin=plugin)
    pod = await bench.run("p", 1)
    assert plugin.named("preferred") == [(("a0", "b0", "c0"), (), 1)]
    assert bench.ids(pod) == {"c0"}


async def test_aligned_devices_are_taken_first_when_they_do_not_suffice():
    bench = await Bench(policy=BEST).up()
    plugin = Plugin(Options(preferred=True))
    bench.serve(Device("n"), *on(0, "a0"), plugin=plugin)
    pod = await bench.run("p", 2)
    assert bench.ids(pod) == {"a0", "n"}
    assert plugin.named("preferred") == [(("a0", "n"), ("a0",), 2)]


async def test_the_rest_beyond_the_aligned_set_is_asked_for_with_that_as_must():
    bench = await Bench(policy=BEST).up()
    plugin = Plugin(Options(preferred=True))
    bench.serve(*on(0, "a0"), *on(1, "a1", "b1"), plugin=plugin)
    init = await bench.run("other", containers=[container("c", 1)])
    pod = await bench.run("p", 2)
    assert len(bench.ids(init)) == 1
    assert len(bench.ids(pod)) == 2
    assert bench.core.held(GPU) == {"a0", "a1", "b1"}


async def test_podresources_shows_a_device_once_for_each_of_its_nodes():
    bench = await Bench().up()
    bench.serve(Device("a", numa=(0, 1)))
    await bench.run("p", 1)
    (entry,) = bench.core.pod_resources()
    ((_, records),) = entry.containers
    assert sorted((each.id, each.node) for each in records) == [("a", 0), ("a", 1)]


def test_more_than_eight_nodes_are_refused_at_start():
    with pytest.raises(ValueError, match="refuses topology policy"):
        Traits(policy=BEST, numa=9)
    assert Traits(numa=36).numa == 36


async def test_hints_of_a_wide_machine_stay_affordable_from_1_36():
    bench = await Bench("1.36", policy=BEST, numa=8).up()
    bench.serve(*on(0, *(f"a{n}" for n in range(4))), *on(1, *(f"b{n}" for n in range(4))))
    pod = await bench.run("p", 4)
    assert len({each[0] for each in bench.ids(pod)}) == 1
