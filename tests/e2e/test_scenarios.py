"""A plugin's life as the kubelet's own tests tell it (spec/kubelet.md 16), with the agent in the plugin's part.

The numbers are those of the scenarios. What test_life, test_kubelet and test_runtime tell already is not here; what
needs a fault that the agent lacks is a row of tests/contract/table.
"""

from __future__ import annotations

import os
import signal

import pytest
import trio

from tests.e2e.agent import Agent
from tests.e2e.api import Object
from tests.e2e.logs import PATIENCE
from tests.e2e.node import GPU, Node, container_of, health, phase, reason

FOUR = "4xH100"


async def with_four(node: Node) -> Agent:
    agent = await node.start_agent(FOUR)
    await node.resource(GPU, allocatable=4, capacity=4)
    return agent


async def gpus_of(node: Node, pod: str, container: str = "c") -> frozenset[str]:
    seen = await node.inside(pod, container)
    return frozenset(seen.environment["NVIDIA_VISIBLE_DEVICES"].split(","))


async def registered(node: Node, agent: Agent, since: int) -> None:
    """Wait until a kubelet that was restarted has the agent's list."""
    await agent.event("plugin.registered", since=since)
    await node.podresources.shows(GPU, lambda ids: len(ids) == 4)


async def listed(node: Node, pod: str, gpus: frozenset[str]) -> None:
    """Wait until podresources lists the pod with these. A kubelet that just started lists nobody for a while."""
    with trio.fail_after(PATIENCE):
        while True:
            if (await node.podresources.held(GPU)).get(pod) == gpus:
                return
            await trio.sleep(0.05)


def restarts(pod: Object) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


async def restart_container(node: Node, pod: str) -> None:
    """Its container ends, and is started again by the kubelet."""
    before = restarts(await node.pod(pod, phase))
    os.kill((await node.inside(pod)).pid, signal.SIGKILL)
    await node.pod(pod, lambda found: restarts(found) > before)
    await node.running(pod)


async def test_a_container_that_starts_again_has_its_gpu_again_also_over_a_kubelet(node: Node):
    """3, 5"""
    agent = await with_four(node)
    await node.run_pod("one", {GPU: 1}, restartPolicy="Always")
    held = await gpus_of(node, "one")
    await restart_container(node, "one")
    assert await gpus_of(node, "one") == held
    await node.run_pod("two", {GPU: 1})
    assert held.isdisjoint(await gpus_of(node, "two"))
    mark = agent.log.mark()
    await node.kubelet.restart()
    await registered(node, agent, mark)
    assert await gpus_of(node, "one") == held
    await listed(node, "one", held)


async def test_a_pod_that_succeeded_stays_so_when_the_kubelet_restarts_without_the_agent(node: Node):
    """6"""
    agent = await with_four(node)
    await node.create_pod("done", {GPU: 1}, command="exit 0")
    await node.pod("done", lambda pod: phase(pod) == "Succeeded")
    await agent.stop()
    await node.resource(GPU, allocatable=0, capacity=4)
    await node.kubelet.restart()
    await node.resource(GPU, allocatable=0, capacity=0)
    done = await node.pod("done", phase)
    assert (phase(done), reason(done)) == ("Succeeded", "")
    assert "done" not in await node.podresources.held(GPU)


async def test_an_agent_that_is_killed_or_stopped_takes_no_gpu_from_anybody(node: Node):
    """7, 8, 19"""
    agent = await with_four(node)
    await node.run_pod("two", {GPU: 2})
    held = await gpus_of(node, "two")
    for number in (signal.SIGKILL, signal.SIGTERM):
        await agent.stop(number)
        await node.resource(GPU, allocatable=0, capacity=4)
        agent.start()
        await node.resource(GPU, allocatable=4, capacity=4)
        assert (await node.podresources.held(GPU))["two"] == held
    await node.kubelet.restart()
    mark = agent.log.mark()
    await agent.restart(signal.SIGKILL)
    await registered(node, agent, mark)
    await node.resource(GPU, allocatable=4, capacity=4)
    assert await gpus_of(node, "two") == held
    await listed(node, "two", held)
    await node.run_pod("rest", {GPU: 2})
    assert held.isdisjoint(await gpus_of(node, "rest"))


async def test_an_init_container_hands_its_gpu_on_and_a_sidecar_keeps_its_own(node: Node):
    """10"""
    await with_four(node)
    init = [
        container_of("init", {GPU: 1}, command="exit 0"),
        container_of("side", {GPU: 1}, restartPolicy="Always"),
    ]
    await node.run_pod("pod", {GPU: 1}, initContainers=init)
    holders = {owner.rpartition("/")[2]: ids for owner, ids in (await node.podresources.holders())[GPU].items()}
    assert {name: len(ids) for name, ids in holders.items()} == {"side": 1, "c": 1}
    assert holders["side"].isdisjoint(holders["c"])
    assert await gpus_of(node, "pod") == holders["c"]


async def test_after_a_reboot_a_pod_is_refused_until_the_agent_is_there(node: Node):
    """11, 12"""
    agent = await with_four(node)
    await node.run_pod("two", {GPU: 2}, restartPolicy="Always")
    await node.reboot()
    refused = await node.pod("two", lambda pod: phase(pod) == "Failed")
    assert "no healthy devices present" in reason(refused)
    await node.resource(GPU, allocatable=0, capacity=0)
    agent.start()
    await node.resource(GPU, allocatable=4, capacity=4)
    await node.run_pod("four", {GPU: 4})


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.long)])
async def test_a_fault_under_a_running_pod_neither_ends_it_nor_goes_away_with_it(node: Node, seconds: int):
    """15, 20. The kubelet's own test looks for a minute at each."""
    agent = await node.start_agent("1xH100")
    await node.resource(GPU, allocatable=1, capacity=1)
    await node.run_pod("one", {GPU: 1})
    await agent.gpus("xid", 0, 79)
    await node.resource(GPU, allocatable=0, capacity=1)
    await node.pod("one", lambda pod: set(health(pod).values()) == {"Unhealthy"})
    with trio.move_on_after(seconds):
        ended = await node.pod("one", lambda pod: phase(pod) != "Running", within=2 * seconds)
        pytest.fail(f"it ended: {ended}")
    await node.delete_pod("one")
    with trio.move_on_after(seconds):
        await node.resource(GPU, allocatable=1, within=2 * seconds)
        pytest.fail("its GPU is healthy again")
    assert await node.counts(GPU) == (1, 0)
    await agent.inject("clear", "gpu=0", "reason=mended")
    await node.resource(GPU, allocatable=1, capacity=1)


async def test_gpus_that_come_and_go_are_counted_one_by_one(node: Node):
    """14, 16"""
    agent = await with_four(node)
    for number, left in ((0, 3), (1, 2)):
        await agent.gpus("xid", number, 79)
        await node.resource(GPU, allocatable=left, capacity=4)
    for number, left in ((1, 3), (0, 4)):
        await agent.inject("clear", f"gpu={number}", "reason=mended")
        await node.resource(GPU, allocatable=left, capacity=4)


async def test_a_pod_that_waits_for_its_image_is_told_of_its_gpu(node: Node):
    """21"""
    agent = await node.start_agent("1xH100")
    await node.resource(GPU, allocatable=1, capacity=1)
    absent = container_of("c", {GPU: 1}, image="e2e.local/absent:1")
    await node.create_pod("waits", containers=[absent])
    waits = await node.pod("waits", lambda pod: set(health(pod).values()) == {"Healthy"})
    assert phase(waits) == "Pending"
    await agent.gpus("xid", 0, 79)
    await node.pod("waits", lambda pod: set(health(pod).values()) == {"Unhealthy"})


# ---------------------------------------------------------------- the two crashes (spec/realnode.md 5)


async def test_a_gpu_unplugged_during_its_allocate_harms_no_kubelet(node: Node):
    """The agent is stopped in the middle of the kubelet's calls; when it goes on, its GPU is gone.

    A plugin that drops the id then ends a kubelet from 1.34 on: ``an_id_dropped_during_its_allocate`` in the table.
    """
    agent = await node.start_agent("1xH100")
    await node.resource(GPU, allocatable=1, capacity=1)
    agent.send(signal.SIGSTOP)
    mark = node.kubelet.log.mark()
    await node.create_pod("one", {GPU: 1})
    await node.kubelet.log.until("Issuing a GetPreferredAllocation call", since=mark)  # Allocate follows at once
    await agent.gpus("unplug", 0)
    agent.send(signal.SIGCONT)
    await node.pod("one", lambda pod: phase(pod) in ("Running", "Failed"))
    await node.resource(GPU, allocatable=0)
    await node.delete_pod("one")
    await node.resource(GPU, allocatable=0, capacity=0)
    assert node.kubelet.alive
    assert not node.kubelet.log.find("^panic:|nil pointer", since=mark)


async def test_a_gpu_that_vanished_over_a_silent_restart_harms_no_kubelet(node: Node):
    """Policy best-effort, and the API server silent until the agent has registered: the GPU that a pod holds is gone.

    A plugin that does not list it then ends a kubelet from 1.34 on: ``a_held_id_missing_after_a_restart``.
    """
    agent = await node.start_agent("2xH100", config="version: v1\n")
    await node.resource(GPU, allocatable=2, capacity=2)
    await node.run_pod("one", {GPU: 1})
    (held,) = await gpus_of(node, "one")
    node.apiserver.pause()
    mark, begun = agent.log.mark(), node.kubelet.log.mark()
    await node.kubelet.stop(signal.SIGKILL)
    await agent.gpus("unplug", held)
    await agent.restart(signal.SIGKILL)
    node.kubelet.settings["topologyManagerPolicy"] = "best-effort"
    node.kubelet.start()
    await agent.event("plugin.registered", since=mark)
    await node.podresources.shows(GPU, lambda ids: len(ids) == 1 and held not in ids)
    node.apiserver.resume()
    await node.resource(GPU, allocatable=1, capacity=2)
    await node.ready()
    assert phase(await node.running("one")) == "Running"
    await listed(node, "one", frozenset({held}))
    assert node.kubelet.alive
    assert not node.kubelet.log.find("^panic:|nil pointer", since=begun)
    await node.delete_pod("one")
    await node.resource(GPU, allocatable=1, capacity=1)
