"""Where a plugin ends a kubelet of 1.34 or later (spec/kubelet.md 14), and how a careful one does not."""

from __future__ import annotations

import pytest

from reactor.simulate.kubelet.plugin import Device, KubeletPanic
from reactor.simulate.kubelet.pods import Phase
from reactor.simulate.kubelet.topology import Policy
from tests.simulate.kubelet.bench import GPU, Bench, Plugin, bad, container, on

POINTERS = ["1.34", "1.36", "1.37"]
VALUES = ["1.29", "1.33"]


def meanwhile(bench: Bench, plugin: Plugin, *devices: Device | str):
    async def send() -> None:
        (client,) = bench.core.registry.clients.values()
        bench.list(client, *devices)

    plugin.during = send


@pytest.mark.parametrize("version", POINTERS)
async def test_an_id_dropped_while_its_allocate_is_in_flight_panics(version):
    bench = await Bench(version).up()
    plugin = bench.serve("a")
    meanwhile(bench, plugin, "b")
    with pytest.raises(KubeletPanic, match=r"allocateContainerResources: a of .* left the list"):
        await bench.run("p")
    assert bench.core.panicked is not None


@pytest.mark.parametrize("version", POINTERS)
async def test_an_id_kept_as_unhealthy_while_its_allocate_is_in_flight_does_not(version):
    bench = await Bench(version).up()
    plugin = bench.serve("a")
    meanwhile(bench, plugin, bad("a"), "b")
    assert (await bench.run("p")).phase is Phase.RUNNING
    assert bench.core.panicked is None


@pytest.mark.parametrize("version", VALUES)
async def test_kubelets_before_1_34_survive_the_first(version):
    bench = await Bench(version).up()
    plugin = bench.serve("a")
    meanwhile(bench, plugin, "b")
    pod = await bench.run("p")
    assert pod.phase is Phase.RUNNING
    assert bench.ids(pod) == {"a"}


@pytest.mark.parametrize("policy", [Policy.BEST_EFFORT, Policy.RESTRICTED])
@pytest.mark.parametrize("version", POINTERS)
async def test_a_held_id_missing_when_its_pod_is_admitted_again_panics(version, policy):
    bench = await Bench(version, policy=policy).up()
    bench.serve(*on(0, "a"))
    await bench.run("p")
    bench.reborn()
    bench.serve(*on(0, "b"))
    with pytest.raises(KubeletPanic, match="generateDeviceTopologyHints: a is not listed"):
        await bench.core.hear()
    assert bench.core.panicked is not None


@pytest.mark.parametrize(
    ("version", "policy", "devices"),
    [
        ("1.34", Policy.BEST_EFFORT, [bad("a", numa=(0,)), *on(0, "b")]),
        ("1.34", Policy.BEST_EFFORT, ["b"]),
        ("1.34", Policy.NONE, on(0, "b")),
        ("1.33", Policy.BEST_EFFORT, on(0, "b")),
    ],
    ids=["tombstone", "no topology", "policy none", "value map"],
)
async def test_where_the_second_does_not_happen(version, policy, devices):
    bench = await Bench(version, policy=policy).up()
    bench.serve(*on(0, "a"))
    pod = await bench.run("p")
    bench.reborn()
    bench.serve(*devices)
    await bench.core.hear()
    assert pod.phase is Phase.RUNNING
    assert bench.core.panicked is None


async def test_the_second_does_not_happen_when_the_pod_is_back_before_the_plugin():
    bench = await Bench(policy=Policy.BEST_EFFORT).up()
    bench.serve(*on(0, "a"))
    await bench.run("p")
    bench.reborn()
    await bench.core.hear()
    bench.serve(*on(0, "b"))
    assert bench.core.panicked is None


async def test_a_reusable_id_dropped_before_the_app_containers_turn_panics():
    bench = await Bench(policy=Policy.BEST_EFFORT).up()
    plugin = bench.serve(*on(0, "a"), *on(1, "b"))

    async def drop() -> None:
        (client,) = bench.core.registry.clients.values()
        (held,) = plugin.named("allocate")[0][0]
        bench.list(client, bad(held, numa=(0,)), *on(1, "c"))
        plugin.during = None

    plugin.during = drop
    pod = await bench.run("p", init=[container("i", 1)], containers=[container("c", 1)])
    assert pod.phase is Phase.RUNNING
    assert GPU in bench.core.manager.listed
