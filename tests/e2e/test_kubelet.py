"""What befalls a kubelet while pods hold GPUs. Whatever it is, a running pod keeps its GPU and nobody else gets it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e.api import Object
from tests.e2e.node import GPU, Node, phase, reason
from tests.e2e.other import end_other, start_other
from tests.e2e.owners import GPUS, owner, with_pods
from tests.e2e.settings import Setting
from tests.e2e.versions import EVERY_KUBELET, OLD_KUBELET
from tests.e2e.world import HOSTNAME

SHARED = """
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, replicas: 2}
"""
OTHER = "example.com/other"
REGISTERED = "Got registration request from device plugin"
"""In the kubelet's log: unlike the agent's, which folds what comes again and again, it has a line for each."""
COUNTED_REGISTERS = f'kubelet_device_plugin_registration_total{{resource_name="{GPU}"}}'
COUNTED_ALLOCATES = f'kubelet_device_plugin_alloc_duration_seconds_count{{resource_name="{GPU}"}}'
COUNTED_LISTS = 'kubelet_pod_resources_endpoint_requests_list{server_api_version="v1"}'
COUNTED_ERRORS = 'kubelet_pod_resources_endpoint_errors_list{server_api_version="v1"}'


async def restarted(node: Node, number: signal.Signals = signal.SIGTERM, **settings: Setting) -> None:
    """Restart the kubelet and wait until it has the agent's list again."""
    mark = node.kubelet.log.mark()
    await node.kubelet.restart(number, **settings)
    await listed_again(node, mark)


async def listed_again(node: Node, mark: int) -> None:
    await node.kubelet.log.until(REGISTERED, since=mark)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS)


@pytest.mark.parametrize("times", [10, pytest.param(20, marks=pytest.mark.long)])
async def test_a_kubelet_restarted_again_and_again_finds_every_gpu_with_its_pod(node: Node, times: int):
    owners = await with_pods(node, one=1, two=2)
    mark = node.kubelet.log.mark()
    for number in [signal.SIGTERM, signal.SIGKILL] * (times // 2):
        await restarted(node, number)
    await owners.listed()
    await owners.add("rest", 1)
    assert len(node.kubelet.log.find(REGISTERED, since=mark)) == times


@EVERY_KUBELET
async def test_a_kubelet_killed_while_a_pod_comes_gives_it_gpus_of_its_own(node: Node):
    owners = await with_pods(node, one=1)
    mark = owners.agent.log.mark()
    await node.create_pod("two", {GPU: 2})
    await owners.agent.event("allocation.answered", since=mark)
    await restarted(node, signal.SIGKILL)
    await node.running("two")
    owners.pods["two"] = await owner(node, "two")
    await owners.stand()
    await owners.listed()
    await owners.add("rest", 1)


@EVERY_KUBELET
async def test_a_kubelet_that_restarts_before_a_silent_api_server_forgets_nobody(node: Node):
    owners = await with_pods(node, one=1, two=2)
    node.apiserver.pause()
    await restarted(node, signal.SIGKILL, topologyManagerPolicy="best-effort")
    assert {hold["id"] for hold in (await owners.agent.state())["holds"]} == owners.gpus()
    node.apiserver.resume()
    await node.ready()
    await owners.listed()
    await owners.stand()
    await owners.add("rest", 1)


def deleted(node: Node) -> None:
    node.checkpoint.unlink()


def truncated(node: Node) -> None:
    text = node.checkpoint.read_text()
    node.checkpoint.write_text(text[: len(text) // 2])


def emptied(node: Node) -> None:
    node.checkpoint.write_text("")


def of_another_checksum(node: Node) -> None:
    content = json.loads(node.checkpoint.read_text())
    node.checkpoint.write_text(json.dumps(content | {"Checksum": content["Checksum"] + 1}))


@EVERY_KUBELET
@pytest.mark.parametrize("spoil", [deleted, truncated, emptied, of_another_checksum])
async def test_a_kubelet_that_lost_its_checkpoint_gives_no_gpu_of_a_running_pod_away(
    node: Node, spoil: Callable[[Node], None]
):
    """It thinks that every GPU is free. What the agent itself remembers stands alone."""
    owners = await with_pods(node, two=2)
    await node.kubelet.stop()
    spoil(node)
    mark, told = node.kubelet.log.mark(), owners.agent.log.mark()
    node.kubelet.start()
    await listed_again(node, mark)
    await owners.agent.event("hold.suspended", since=told, pod="default/two", count=2)
    await owners.add("next", 2)
    await node.create_pod("third", {GPU: 1})
    await node.pod("third", lambda pod: "Insufficient" in reason(pod))
    await node.delete_pod("third")
    del owners.pods["two"]
    await node.delete_pod("two")
    await owners.agent.event("hold.ended", since=told, pod="default/two", count=2)
    await owners.add("last", 2)


@EVERY_KUBELET
@pytest.mark.parametrize("lost", [False, True], ids=["continued", "lost"])
async def test_books_that_another_plugin_had_written_anew_are_read_for_what_they_are(node: Node, lost: bool):
    """The other one is sooner with its list, so the first file of this life lacks a pod: it ended, or is forgotten."""
    owners = await with_pods(node, two=2)
    agent = owners.agent
    agent.send(signal.SIGSTOP)
    ended = owners.pods.pop("two") if not lost else None
    if ended is not None:
        await node.delete_pod("two")
        await ended.ended()
    await node.kubelet.stop()
    if lost:
        deleted(node)
    node.kubelet.start()
    await node.kubelet_accepts()
    other = await start_other(node, OTHER, ["a"])
    await node.podresources.shows(OTHER, lambda ids: len(ids) == 1)
    await node.run_pod("theirs", {OTHER: 1})
    assert "two" not in await node.podresources.held(GPU)
    mark, told = node.kubelet.log.mark(), agent.log.mark()
    agent.send(signal.SIGCONT)
    await listed_again(node, mark)
    if lost:
        await agent.event("hold.suspended", since=told, pod="default/two", count=2)
        await owners.add("next", 2)
    else:
        await owners.known()
        assert not any(line["pod"] == "default/two" for line in agent.log.of("hold.suspended"))
        await owners.add("all", GPUS)
    await end_other(other)


async def test_a_checkpoint_and_the_agent_lost_together_leave_the_agents_own_file(node: Node):
    owners = await with_pods(node, two=2)
    await owners.agent.kill()
    await node.kubelet.kill()
    deleted(node)
    mark = node.kubelet.log.mark()
    node.kubelet.start()
    owners.agent.start()
    await listed_again(node, mark)
    await owners.add("next", 2)


async def test_a_checkpoint_deleted_under_a_running_kubelet_is_written_again(node: Node):
    owners = await with_pods(node, two=2)
    deleted(node)
    await owners.add("one", 1)
    await owners.listed()
    deleted(node)
    await owners.agent.kill()
    mark = node.kubelet.log.mark()
    owners.agent.start()
    await listed_again(node, mark)
    await node.kubelet.log.until("Checkpoint file written", since=mark)
    await restarted(node, signal.SIGKILL)
    await owners.listed()
    await owners.add("rest", 1)


@EVERY_KUBELET
async def test_a_pod_deleted_by_force_while_the_kubelet_is_down_frees_its_gpus(node: Node):
    """What it left is an orphan: the kubelet ends it when it is back."""
    owners = await with_pods(node, two=2, one=1)
    await node.kubelet.stop()
    await node.delete_pod("two", grace=0)
    node.kubelet.start()
    await owners.pods.pop("two").ended()
    await owners.listed()
    await owners.add("three", 3)


async def test_a_pod_deleted_by_force_frees_its_gpus(node: Node):
    owners = await with_pods(node, two=2, one=1)
    await node.delete_pod("two", grace=0)
    await owners.pods.pop("two").ended()
    await owners.add("three", 3)
    await owners.listed()


async def test_a_node_object_deleted_and_made_again_has_its_gpus(node: Node):
    """Only a kubelet that starts makes its Node object."""
    owners = await with_pods(node, two=2)
    await node.api.delete("Node", HOSTNAME)
    await node.gone("Node", HOSTNAME)
    await restarted(node)
    await node.ready()
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    await owners.listed()
    await owners.add("rest", 2)


@OLD_KUBELET
async def test_a_checkpoint_that_goes_stale_holds_nothing(node: Node):
    """Up to 1.33 the kubelet forgets a pod that ended only at its next Allocate: no list makes it write its file."""
    owners = await with_pods(node, two=2)
    gpus = owners.gpus()
    mark = owners.agent.log.mark()
    del owners.pods["two"]
    await node.delete_pod("two")
    owners.agent.write_config(SHARED)
    await owners.agent.event("hold.ended", since=mark, pod="default/two")
    await node.resource(GPU, allocatable=2 * GPUS, capacity=2 * GPUS)
    assert all(gpu in node.checkpoint.read_text() for gpu in gpus)
    await node.run_pod("shares", {GPU: 2 * GPUS})
    assert (await owner(node, "shares")).gpus > gpus


async def test_a_container_of_a_forgotten_pod_that_starts_again_gets_gpus_that_nobody_has(node: Node):
    """The kubelet knows of no answer to reuse, so it asks for others. What another container of the pod may still use
    stays kept.
    """
    owners = await with_pods(node)
    await node.run_pod("two", {GPU: 2}, restartPolicy="Always")
    owners.pods["two"] = before = await owner(node, "two")
    await owners.known()
    await node.kubelet.stop()
    deleted(node)
    node.kubelet.start()
    await listed_again(node, node.kubelet.begun)
    os.kill(before.pid, signal.SIGKILL)
    await before.ended()
    await node.pod("two", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] and ready(pod))
    after = await owner(node, "two")
    assert after.gpus.isdisjoint(before.gpus)
    await node.create_pod("next", {GPU: 1})
    refused = await node.pod("next", lambda pod: phase(pod) == "Failed")
    assert "pod default/two has it" in reason(refused)
    del owners.pods["two"]
    await node.delete_pod("two")
    await owners.known()
    await owners.add("all", GPUS)


def ready(pod: Object) -> bool:
    return all(each["ready"] for each in pod["status"]["containerStatuses"])


async def test_the_kubelets_own_metrics_count_one_register_a_life_and_one_allocate_a_pod(node: Node):
    """Scenario 40, and what an operator sees of the agent from there: no edit and no fault registers it again."""
    before = await metrics(node)
    owners = await with_pods(node, two=2, one=1)
    owners.agent.write_config(SHARED)
    await node.resource(GPU, allocatable=2, capacity=3 + 2 * GPUS)
    for number in range(GPUS):
        await owners.agent.gpus("xid", number, 79)
    await node.resource(GPU, allocatable=0, capacity=3 + 2 * GPUS)
    after = await metrics(node)
    counted = {name: after.get(name, 0) - before.get(name, 0) for name in (COUNTED_REGISTERS, COUNTED_ALLOCATES)}
    assert counted == {COUNTED_REGISTERS: 1, COUNTED_ALLOCATES: 2}
    assert after[COUNTED_LISTS] > before.get(COUNTED_LISTS, 0)
    assert after.get(COUNTED_ERRORS, 0) == before.get(COUNTED_ERRORS, 0)


async def metrics(node: Node) -> dict[str, float]:
    """The kubelet's, by name with labels, through the API server."""
    text = await node.api.request("GET", f"/api/v1/nodes/{HOSTNAME}/proxy/metrics")
    lines = (line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}
