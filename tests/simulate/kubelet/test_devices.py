"""Lists, counts and endpoints of the simulated device manager: rows 13-19, 22-24, 34 of spec/kubelet.md 16."""

from __future__ import annotations

import pytest

from reactor.simulate.kubelet.plugin import Device
from tests.simulate.kubelet.bench import GPU, Bench, Plugin, bad


async def test_each_list_replaces_the_one_before():
    bench = await Bench().up()
    client = bench.connect(Plugin())
    seen = []
    for ill in ((), ("a",), (), ("a", "b"), ("b",), ()):
        bench.list(client, *(bad(each) if each in ill else each for each in "abcd"))
        seen.append(bench.counts())
    assert seen == [(4, 4), (3, 4), (4, 4), (2, 4), (3, 4), (4, 4)]


async def test_an_empty_list_keeps_the_resource_at_zero():
    bench = await Bench().up()
    client = bench.connect(Plugin())
    bench.list(client, "a", "b")
    bench.list(client)
    assert bench.counts() == (0, 0)
    assert not bench.core.capacity().deleted


@pytest.mark.parametrize("health", ["", "foo", "healthy", "Unhealthy"])
async def test_anything_but_healthy_is_unhealthy(health):
    bench = await Bench().up()
    bench.serve("a", Device("b", health))
    assert bench.counts() == (1, 2)


async def test_an_id_listed_with_both_healths_counts_twice():
    bench = await Bench().up()
    bench.serve("a", bad("a"))
    assert bench.counts() == (1, 2)


async def test_a_stream_that_never_listed_leaves_nothing():
    bench = await Bench().up()
    client = bench.connect(Plugin())
    bench.core.registry.ended(client)
    assert bench.counts() == (0, 0)


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_a_stopped_plugin_is_deleted_after_the_grace_and_its_key_stays(version):
    bench = await Bench(version).up()
    client = bench.connect(Plugin())
    bench.list(client, "a", "b")
    bench.core.registry.ended(client)
    assert bench.counts() == (0, 2)
    bench.now += 300
    assert bench.counts() == (0, 2)
    bench.now += 1
    assert bench.core.capacity().deleted == {GPU}
    assert not bench.core.manager.healthy
    assert not bench.core.manager.unhealthy
    assert not bench.core.manager.endpoints
    assert GPU not in bench.written[-1].registered


async def test_the_node_keeps_a_deleted_resource_at_zero():
    bench = await Bench().up()
    client = bench.connect(Plugin())
    bench.list(client, "a")
    bench.core.registry.ended(client)
    bench.now += 301
    assert bench.counts() == (0, 0)
    assert bench.core.sample() == {GPU: (0, 0)}
    assert GPU not in bench.core.capacity().capacity


async def test_resources_after_a_restart_are_zero_and_get_the_grace_again():
    bench = await Bench().up()
    bench.serve("a", "b")
    bench.now += 1000
    bench.reborn()
    assert bench.counts() == (0, 0)
    assert not bench.core.capacity().deleted
    bench.now += 301
    assert bench.core.capacity().deleted == {GPU}


async def test_reregistration_at_another_socket_takes_the_list_over():
    bench = await Bench().up()
    counts = []
    for number, ids in enumerate(("12", "12", "3")):
        client = bench.connect(Plugin(), socket=f"{number}.sock")
        bench.list(client, *ids)
        counts.append(bench.counts())
    assert counts == [(2, 2), (2, 2), (1, 1)]


async def test_a_changed_health_is_told_for_held_ids_only():
    bench = await Bench("1.36").up()
    client = bench.connect(Plugin())
    bench.list(client, "a", "b")
    pod = await bench.run("p", 1)
    (held,) = bench.ids(pod)
    bench.list(client, bad("a"), bad("b"))
    assert [(each.uid, each.id, each.healthy) for each in bench.core.manager.changes] == [(pod.uid, held, False)]
    assert bench.core.pod_health(pod) == {GPU: {held: "Unhealthy"}}


async def test_a_removed_id_looks_healthy_in_the_pod_status():
    bench = await Bench("1.36").up()
    client = bench.connect(Plugin())
    bench.list(client, "a")
    pod = await bench.run("p", 1)
    bench.list(client, "b")
    assert bench.core.pod_health(pod) == {GPU: {"a": "Healthy"}}
    assert not bench.core.manager.changes
    bench.list(client, bad("a"), "b")
    assert [(each.id, each.healthy) for each in bench.core.manager.changes] == [("a", False)]


@pytest.mark.parametrize("version", ["1.34", "1.37"])
async def test_the_pod_status_looks_ids_up_in_their_own_resource(version):
    bench = await Bench(version).up()
    client = bench.connect(Plugin())
    bench.list(client, "a")
    pod = await bench.run("p", 1)
    bench.list(client)
    bench.serve(bad("a"), resource="nvidia.com/gpu.shared")
    assert bench.core.pod_health(pod) == {GPU: {"a": "Healthy"}}
