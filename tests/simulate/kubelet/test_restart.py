"""Checkpoint, release and restart: spec/kubelet.md 7 and 7a, rows 4-12 and 25 of its section 16."""

from __future__ import annotations

import json

import pytest

from reactor.simulate.kubelet.checkpoint import Books, parse
from reactor.simulate.kubelet.core import KubeletCore
from reactor.simulate.kubelet.plugin import ContainerAnswer, Device
from reactor.simulate.kubelet.podresources import merged
from reactor.simulate.kubelet.pods import Phase
from tests.simulate.kubelet.bench import GPU, Bench, Plugin, bad, container

VERSIONS = ["1.29", "1.33", "1.34", "1.37"]


def listed(bench: Bench) -> list[str]:
    return [each.pod.name for each in bench.core.pod_resources()]


async def test_the_checkpoint_has_the_kubelets_shape_and_reads_back():
    bench = await Bench().up()
    answer = ContainerAnswer(envs=(("NVIDIA_VISIBLE_DEVICES", "a"),), cdi=("v/c=1",))
    bench.serve(Device("a", numa=(0, 1)), "b", plugin=Plugin(answer=lambda ids: (answer,)))
    pod = await bench.run("p", 2)
    books = bench.written[-1]
    data = json.loads(books.text)["Data"]
    assert data["RegisteredDevices"] == {GPU: ["a", "b"]}
    (entry,) = data["PodDeviceEntries"]
    assert (entry["PodUID"], entry["ContainerName"], entry["ResourceName"]) == (pod.uid, "c", GPU)
    assert entry["DeviceIDs"] == {"0": ["a"], "1": ["a"], "-1": ["b"]}
    assert parse(books.text) == books


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"Data":{},"Checksum":1}', b"\xff"])
def test_a_checkpoint_that_cannot_be_read_counts_as_nothing(text):
    assert parse(text) == Books()


def test_an_empty_checkpoint_says_null():
    assert json.loads(Books().text)["Data"]["PodDeviceEntries"] is None


@pytest.mark.parametrize(("version", "freed"), [("1.29", False), ("1.33", False), ("1.34", True), ("1.37", True)])
async def test_from_1_34_a_list_rewrites_the_checkpoint_without_ended_pods(version, freed):
    bench = await Bench(version).up()
    client = bench.connect(Plugin())
    bench.list(client, "a", "b", "c")
    pod = await bench.run("p", 2)
    bench.delete(pod)
    assert listed(bench) == []
    assert bench.entries()
    bench.list(client, "a", "b", "c")
    assert (not bench.entries()) is freed
    await bench.run("q", 1)
    assert len(bench.entries()) == 1
    assert len(bench.core.held(GPU)) == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_running_pod_keeps_its_ids_over_a_restart(version):
    bench = await Bench(version).up()
    bench.serve("a", "b")
    pod = await bench.run("p", 1)
    before = bench.ids(pod)
    bench.reborn()
    assert bench.counts() == (0, 0)
    await bench.core.hear()
    plugin = bench.serve("a", "b")
    assert pod.phase is Phase.RUNNING
    assert bench.ids(pod) == before
    other = await bench.run("q", 1)
    assert bench.ids(other) == {"a", "b"} - before
    assert len(plugin.named("allocate")) == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_list_is_empty_until_the_api_server_answers_and_nothing_is_freed(version):
    bench = await Bench(version).up()
    bench.serve("a")
    await bench.run("p", 1)
    bench.reborn()
    client = bench.connect(Plugin())
    assert listed(bench) == []
    bench.list(client, "a")
    assert len(bench.entries()) == 1
    await bench.core.hear()
    assert listed(bench) == ["p"]


async def test_a_pod_deleted_while_the_kubelet_was_down_is_freed():
    bench = await Bench().up()
    bench.serve("a")
    bench.api.delete((await bench.run("p", 1)).ref.name)
    bench.reborn()
    assert bench.core.held(GPU) == {"a"}
    await bench.core.hear()
    assert listed(bench) == []
    assert not bench.core.held(GPU)


async def test_without_its_checkpoint_the_kubelet_lists_a_running_pod_without_devices():
    bench = await Bench().up()
    bench.serve("a")
    await bench.run("p", 1)
    bench.written.clear()
    bench.reborn()
    await bench.core.hear()
    (entry,) = merged(bench.core.pod_resources())
    assert (entry.pod.name, entry.devices) == ("p", ())
    bench.serve("a")
    assert not bench.core.held(GPU)


async def test_after_a_reboot_a_pod_admitted_before_its_plugin_fails():
    bench = await Bench().up()
    bench.serve("a", "b")
    pod = await bench.run("p", 1)
    pod.running = frozenset()
    bench.reborn()
    await bench.core.hear()
    assert (pod.phase, pod.reason) == (Phase.FAILED, "UnexpectedAdmissionError")
    assert "no healthy devices present" in pod.message
    assert listed(bench) == []


async def test_a_succeeded_pod_is_not_admitted_again():
    bench = await Bench().up()
    bench.serve("a")
    pod = await bench.run("p", 1)
    pod.phase = Phase.SUCCEEDED
    bench.reborn()
    await bench.core.hear()
    assert pod.phase is Phase.SUCCEEDED
    assert not pod.reason


@pytest.mark.parametrize(("version", "shown"), [("1.33", ["p"]), ("1.34", [])])
async def test_from_1_34_list_shows_active_pods_only(version, shown):
    bench = await Bench(version).up()
    bench.serve("a")
    (await bench.run("p", 1)).phase = Phase.SUCCEEDED
    assert listed(bench) == shown


@pytest.mark.parametrize("running", [True, False])
async def test_a_cached_allocation_needs_no_call_and_a_healthy_device(running):
    bench = await Bench().up()
    bench.serve("a")
    pod = await bench.run("p", 1)
    bench.reborn()
    pod.running = pod.running if running else frozenset()
    plugin = bench.serve(bad("a"), "b")
    await bench.core.hear()
    assert not plugin.named("allocate")
    assert pod.phase is (Phase.RUNNING if running else Phase.FAILED)


async def test_sidecars_are_listed_and_plain_init_containers_are_not():
    bench = await Bench().up()
    bench.serve("a", "b")
    pod = await bench.run(
        "p", init=[container("i", 1), container("s", 1, sidecar=True)], containers=[container("c", 1)]
    )
    (entry,) = bench.core.pod_resources()
    assert [name for name, _ in entry.containers] == ["s", "c"]
    assert bench.ids(pod, "i") == bench.ids(pod, "s")
    assert bench.core.pod_resources_of(pod.ref) == entry


async def test_pods_without_devices_are_listed_and_absent_from_the_checkpoint():
    bench = await Bench().up()
    bench.serve("a")
    await bench.run("plain", 0)
    assert listed(bench) == ["plain"]
    assert not bench.entries()


async def test_two_admissions_at_once_are_a_mistake_of_the_caller():
    bench = await Bench().up()
    plugin = bench.serve("a", "b")
    core: KubeletCore = bench.core

    async def second() -> None:
        with pytest.raises(RuntimeError, match="while another one is being admitted"):
            await core.add(bench.api.create("q", {GPU: 1}))

    plugin.during = second
    await bench.run("p", 1)
