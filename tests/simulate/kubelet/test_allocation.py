"""Admission and allocation: rows 26-32 of spec/kubelet.md 16 and its section 9."""

from __future__ import annotations

import pytest

from reactor.simulate.kubelet.plugin import ContainerAnswer, DeviceNode, Mount, Options, merge
from reactor.simulate.kubelet.pods import Phase
from tests.simulate.kubelet.bench import GPU, Bench, Plugin, bad, container

UNEXPECTED = "UnexpectedAdmissionError"


def rejected(pod, cause: str) -> bool:
    assert pod.phase is Phase.FAILED
    assert pod.reason == UNEXPECTED
    assert pod.message == f"Pod was rejected: Allocate failed due to {cause}, which is unexpected"
    return True


async def test_requests_of_two_resources_then_too_much_then_all_the_rest():
    bench = await Bench().up()
    bench.serve("a", "b", "c", "d")
    bench.serve("x", "y", resource="domain/r2")
    first = await bench.run("p1", {GPU: 2, "domain/r2": 1})
    assert (len(bench.ids(first)), len(bench.ids(first, resource="domain/r2"))) == (2, 1)
    second = await bench.run("p2", 3)
    assert rejected(second, f"requested number of devices unavailable for {GPU}. Requested: 3, Available: 2")
    third = await bench.run("p3", {GPU: 2, "domain/r2": 1})
    assert bench.ids(first) | bench.ids(third) == set("abcd")


async def test_no_healthy_device_refuses():
    bench = await Bench().up()
    bench.serve(bad("a"))
    assert rejected(await bench.run("p"), f"no healthy devices present; cannot allocate unhealthy devices {GPU}")


async def test_a_resource_that_nobody_ever_registered_is_skipped():
    bench = await Bench().up()
    pod = await bench.run("p", 1)
    assert pod.phase is Phase.RUNNING
    assert not bench.ids(pod)


async def test_a_resource_that_is_only_still_allocated_refuses_as_unregistered():
    bench = await Bench().up()
    client = bench.connect(Plugin())
    bench.list(client, "a", "b")
    await bench.run("p1", 1)
    bench.core.registry.ended(client)
    bench.now += 301
    bench.core.capacity()
    assert rejected(await bench.run("p2", 1), f"cannot allocate unregistered device {GPU}")


async def test_an_allocated_id_that_fell_ill_refuses_the_readmission():
    bench = await Bench().up()
    client = bench.connect(Plugin())
    bench.list(client, "a", "b")
    pod = await bench.run("p", 1)
    (held,) = bench.ids(pod)
    bench.list(client, bad(held), *({"a", "b"} - {held}))
    await bench.core.add(pod)
    assert rejected(pod, f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {GPU}")


async def test_another_quantity_for_the_same_pod_refuses():
    bench = await Bench().up()
    bench.serve("a", "b")
    pod = await bench.run("p", 1)
    pod.containers = (container("c", 2),)
    await bench.core.add(pod)
    assert rejected(pod, f'pod "{pod.uid}" container "c" changed request for resource "{GPU}" from 1 to 2')


async def test_the_plugins_own_words_reach_the_pod_status():
    bench = await Bench().up()
    plugin = bench.serve("a")
    plugin.error = "rpc error: code = FailedPrecondition desc = a is withheld"
    assert rejected(await bench.run("p"), plugin.error)
    plugin.error = ""
    assert (await bench.run("q")).phase is Phase.RUNNING


async def test_a_failing_preference_is_the_pods_end():
    bench = await Bench().up()
    plugin = bench.serve("a", plugin=Plugin(Options(preferred=True)))
    plugin.error = "boom"
    assert rejected(await bench.run("p"), "device plugin GetPreferredAllocation rpc failed with err: boom")


async def test_an_empty_answer_leaks_its_ids_until_another_failure():
    bench = await Bench().up()
    plugin = bench.serve("a", plugin=Plugin(answer=lambda ids: ()))
    assert rejected(await bench.run("p1"), "no containers return in allocation response")
    plugin.answer = lambda ids: (ContainerAnswer(),)
    second = await bench.run("p2")
    assert rejected(second, f"requested number of devices unavailable for {GPU}. Requested: 1, Available: 0")
    assert bench.core.held(GPU) == {"a"}


async def test_one_call_for_each_container_and_resource_and_none_for_zero():
    bench = await Bench().up()
    plugin = bench.serve("a", "b", "c")
    await bench.run("p", containers=[container("c1", 1), container("c2", 2), container("c3", 0)])
    assert [len(ids) for (ids,) in plugin.named("allocate")] == [1, 2]


async def test_init_containers_hand_their_devices_on():
    bench = await Bench().up()
    bench.serve(*"abcdef")
    pod = await bench.run(
        "p", init=[container("i1", 1), container("i2", 2)], containers=[container("c1", 1), container("c2", 1)]
    )
    i1, i2, c1, c2 = (bench.ids(pod, each) for each in ("i1", "i2", "c1", "c2"))
    assert i2 >= i1 | c1 | c2
    assert not c1 & c2


async def test_sidecars_keep_what_they_took_from_an_init_container():
    bench = await Bench().up()
    plugin = bench.serve(*"abcdefgh")
    pod = await bench.run(
        "p",
        init=[container("i", 3), container("s1", 1, sidecar=True), container("s2", 2, sidecar=True)],
        containers=[container("c1", 1), container("c2", 2)],
    )
    init, s1, s2, c1, c2 = (bench.ids(pod, each) for each in ("i", "s1", "s2", "c1", "c2"))
    assert init == s1 | s2
    assert len(s1 | s2 | c1 | c2) == 6
    assert len(plugin.named("allocate")) == 5


async def test_an_init_containers_spare_device_is_nobodys_but_stays_in_the_books():
    bench = await Bench().up()
    bench.serve(*"abc")
    pod = await bench.run("p", init=[container("i", 2)], containers=[container("c", 1)])
    assert bench.ids(pod, "c") < bench.ids(pod, "i")
    assert bench.entries() == {("i", frozenset(bench.ids(pod, "i"))), ("c", frozenset(bench.ids(pod, "c")))}
    (entry,) = bench.core.pod_resources()
    assert [name for name, _ in entry.containers] == ["c"]
    assert bench.core.held(GPU) == bench.ids(pod, "i")


async def test_pre_start_gets_the_exact_ids_and_nothing_for_zero():
    bench = await Bench().up()
    plugin = bench.serve("a", "b", plugin=Plugin(Options(pre_start=True)))
    pod = await bench.run("p", containers=[container("c", 2), container("none", 0)])
    assert plugin.named("pre_start") == [(("a", "b"),)]
    await bench.core.restart_container(pod, pod.containers[0])
    assert len(plugin.named("pre_start")) == 2
    assert len(plugin.named("allocate")) == 1


async def test_a_failing_pre_start_keeps_the_pod_waiting():
    bench = await Bench().up()
    plugin = Plugin(Options(pre_start=True))
    plugin.during = lambda: _break(plugin)
    bench.serve("a", plugin=plugin)
    pod = await bench.run("p")
    assert (pod.phase, pod.message) == (Phase.PENDING, "CreateContainerConfigError: GPU is ill")
    plugin.error = ""
    await bench.core.start(pod)
    assert pod.phase is Phase.RUNNING


async def _break(plugin):
    plugin.error = "GPU is ill"


@pytest.mark.parametrize(
    ("asked", "before", "init", "expected"),
    [
        (1, 0, 0, ("abcdef", "", 1)),
        (4, 2, 0, (4, "", 4)),
        (4, 0, 2, ("abcdef", 2, 4)),
        (6, 0, 0, ("abcdef", "", 6)),
        (6, 0, 2, ("abcdef", 2, 6)),
    ],
)
async def test_what_the_plugin_is_asked_to_prefer(asked, before, init, expected):
    bench = await Bench().up()
    plugin = bench.serve(*"abcdef", plugin=Plugin(Options(preferred=True)))
    if before:
        await bench.run("first", before)
    shape = {"init": [container("i", init)]} if init else {}
    await bench.run("p", containers=[container("c", asked)], **shape)
    available, must, size = plugin.named("preferred")[-1]
    wanted_available, wanted_must, wanted_size = expected
    assert len(available) == wanted_available if isinstance(wanted_available, int) else set(available) == set("abcdef")
    assert len(must) == (wanted_must or 0)
    assert set(must) <= set(available)
    assert size == wanted_size


async def test_reusable_devices_that_suffice_are_taken_without_asking():
    bench = await Bench().up()
    plugin = bench.serve(*"abcd", plugin=Plugin(Options(preferred=True)))
    await bench.run("p", init=[container("i", 2)], containers=[container("c", 2)])
    assert len(plugin.named("preferred")) == 1


async def test_preferences_outside_the_offer_are_ignored_and_too_few_are_topped_up():
    bench = await Bench().up()
    plugin = Plugin(Options(preferred=True), prefer=lambda available, must, size: ["zz", "c", "c"])
    bench.serve(*"abcd", plugin=plugin)
    pod = await bench.run("p", 3)
    assert "c" in bench.ids(pod)
    assert len(bench.ids(pod)) == 3
    assert bench.ids(pod) <= set("abcd")


async def test_a_pod_can_be_refused_after_its_allocate():
    bench = await Bench().up()
    client = bench.connect(Plugin())
    bench.list(client, "a", "b")
    running = await bench.run("p", 2)
    bench.core.manager.pods.clear()  # as after a checkpoint that was lost: the kubelet thinks that all is free
    bench.core.manager.recount()
    second = await bench.run("q", 1)
    assert running.phase is Phase.RUNNING
    assert (second.phase, second.reason) == (Phase.FAILED, f"OutOf{GPU}")
    assert client.endpoint.named("allocate")[-1]


def test_first_answer_wins_but_cdi_names_are_united():
    one = ContainerAnswer(
        envs=(("A", "1"),),
        mounts=(Mount("/m", "/1"),),
        devices=(DeviceNode("/dev/x", "/dev/1", "rw"),),
        annotations=(("n", "1"),),
        cdi=("v/c=1", "v/c=1"),
    )
    two = ContainerAnswer(
        envs=(("A", "2"), ("B", "2")),
        mounts=(Mount("/m", "/2"),),
        devices=(DeviceNode("/dev/x", "/dev/2", "r"),),
        annotations=(("n", "2"),),
        cdi=("v/c=2", "v/c=1"),
    )
    merged = merge([one, two])
    assert merged.envs == {"A": "1", "B": "2"}
    assert merged.mounts["/m"].host == "/1"
    assert merged.devices["/dev/x"].host == "/dev/1"
    assert merged.annotations == {"n": "1"}
    assert merged.cdi == ("v/c=1", "v/c=2")
    assert merge([]).envs == {}
