"""GPUs that fall ill, are lost, unplugged, replaced, and drivers that come late: with a pod on them and without.

Whatever happens to its GPU, a pod runs on; nobody gets a GPU that is not well; evidence alone brings one back.
"""

from __future__ import annotations

from tests.e2e.agent import Agent
from tests.e2e.api import Object
from tests.e2e.node import GPU, Node, health, reason
from tests.e2e.settings import Setting
from tests.e2e.witness import Witness, witnessed


def waits(pod: Object) -> bool:
    return "Insufficient" in reason(pod)


async def three_gpus(node: Node) -> tuple[Agent, str, str, str]:
    """An agent over three GPUs, the one that pod ``job`` holds, and the other two."""
    agent = await node.start_agent("3xH100")
    await node.resource(GPU, allocatable=3, capacity=3)
    await node.run_pod("job", {GPU: 1})
    (held,) = (await node.podresources.held(GPU))["job"]
    free, last = sorted(await node.podresources.allocatable(GPU) - {held})
    return agent, held, free, last


async def kubelet_restarted(node: Node, **settings: Setting) -> None:
    mark = node.kubelet.log.mark()
    await node.kubelet.restart(**settings)
    await node.kubelet.log.until("Got registration request from device plugin", since=mark)


async def job_untouched(node: Node, witness: Witness, before: frozenset[int]) -> None:
    await node.running("job")
    await witness.look()
    assert witness.processes["job"] == before


async def test_lost_gpus_are_handed_out_again_when_they_answer_and_the_pod_on_one_runs_on(node: Node):
    """HLT-21"""
    agent, held, free, last = await three_gpus(node)
    async with witnessed(node) as witness:
        await witness.look()
        before = witness.processes["job"]
        for gpu in (held, free):
            await agent.gpus("lose", gpu)
        await agent.inject("rescan")  # else it is the next periodic one that finds out
        await node.resource(GPU, allocatable=1, capacity=3)
        await node.pod("job", lambda pod: health(pod) == {held: "Unhealthy"})
        await node.create_pod("next", {GPU: 1})
        await node.pod("next", waits)  # the scheduler takes off what the job asked for, though that one is not counted
        await agent.gpus("find", free)
        await node.running("next")
        assert (await node.podresources.held(GPU))["next"] <= {free, last}
        await agent.gpus("find", held)
        await node.resource(GPU, allocatable=3, capacity=3)
        await node.pod("job", lambda pod: health(pod) == {held: "Healthy"})
        await job_untouched(node, witness, before)


async def test_an_unplugged_gpu_is_listed_as_long_as_a_pod_has_it_also_over_a_kubelet_restart(node: Node):
    """HLT-21: realnode.md 5, crash 2, is what would come of a list without it."""
    agent, held, free, last = await three_gpus(node)
    async with witnessed(node) as witness:
        await witness.look()
        before = witness.processes["job"]
        for gpu in (held, free):
            await agent.gpus("unplug", gpu)
        await node.resource(GPU, allocatable=1, capacity=2)
        node.apiserver.pause()
        await kubelet_restarted(node, topologyManagerPolicy="best-effort")
        await node.podresources.shows(GPU, lambda ids: ids == {last})
        node.apiserver.resume()
        await node.ready()
        await node.resource(GPU, allocatable=1, capacity=2)
        await job_untouched(node, witness, before)
        for gpu in (held, free):
            await agent.gpus("plug", gpu)
        await node.resource(GPU, allocatable=3, capacity=3)
        await node.pod("job", lambda pod: health(pod) == {held: "Healthy"})
        await agent.gpus("unplug", held)
        await node.resource(GPU, allocatable=2, capacity=3)
        await node.delete_pod("job")
        await node.resource(GPU, allocatable=2, capacity=2)


async def test_a_card_in_the_place_of_a_broken_one_is_another_id(node: Node):
    agent, held, free, last = await three_gpus(node)
    async with witnessed(node):
        await agent.gpus("xid", held, 54)
        await node.resource(GPU, allocatable=2, capacity=3)
        await agent.gpus("unplug", held)
        await agent.event("gpu.removed", gpu=held)
        await agent.gpus("swap", held)
        await node.resource(GPU, allocatable=3, capacity=4)
        assert await node.podresources.allocatable(GPU) > {free, last}
        await node.pod("job", lambda pod: health(pod) == {held: "Unhealthy"})
        await node.delete_pod("job")
        await node.resource(GPU, allocatable=3, capacity=3)
        await node.run_pod("next", {GPU: 3})


async def test_pods_wait_for_a_driver_that_arrives_late(node: Node):
    """DRV-01"""
    gpus = await node.start_gpus("2xH100")
    await gpus("set_driver", "absent")
    agent = await node.start_agent(gpus)
    await agent.event("inventory.failed")
    await node.create_pod("early", {GPU: 1})
    await node.pod("early", waits)
    assert (await node.counts())[1] == 0
    await gpus("set_driver", "ready")
    await node.running("early")
    await node.resource(GPU, allocatable=2, capacity=2)


async def test_a_driver_is_upgraded_under_a_pod(node: Node):
    agent, *_ = await three_gpus(node)
    async with witnessed(node) as witness:
        await witness.look()
        before = witness.processes["job"]
        mark = agent.log.mark()
        await agent.gpus("set_driver", "unloaded")
        await agent.inject("rescan")
        await agent.event("driver.lost", since=mark)
        await node.resource(GPU, allocatable=0, capacity=1)
        await agent.gpus("set_driver", "ready", "590.10.01")
        await agent.event("driver.found", since=mark, driver="590.10.01")
        await node.resource(GPU, allocatable=3, capacity=3)
        await job_untouched(node, witness, before)
        await node.run_pod("next", {GPU: 2})


CLASSES = "version: v1\nhealth: {quietTimes: {unknown: 1s}}\n"


async def test_an_xid_keeps_a_gpu_back_for_as_long_as_its_class_says(node: Node):
    """HLT-01, HLT-02, HLT-32"""
    agent = await node.start_agent("5xH100", config=CLASSES)
    await node.resource(GPU, allocatable=5, capacity=5)
    uuids = [gpu["uuid"] for gpu in (await agent.state())["gpus"]]
    application, reset, _, hardware, unknown = uuids
    mark = agent.log.mark()
    for gpu, code in zip(uuids, (13, 109, 79, 54, 999), strict=True):
        await agent.gpus("xid", gpu, code)
    await agent.event("gpu.condemned", since=mark, gpu=unknown)
    await agent.event("gpu.recovered", since=mark, gpu=unknown)
    await node.resource(GPU, allocatable=2, capacity=5)
    assert await node.podresources.allocatable(GPU) == {application, unknown}
    await agent.restart()  # launders nothing
    await agent.event("agent.settled", since=mark)
    await node.run_pod("two", {GPU: 2})
    assert (await node.podresources.held(GPU))["two"] == {application, unknown}
    await node.delete_pod("two")
    await agent.gpus("recovery", reset, 1)
    await agent.event("recovery.changed", since=mark, gpu=reset)
    await agent.gpus("recovery", reset, 0)
    await node.resource(GPU, allocatable=3, capacity=5)
    await node.reboot()
    agent.start()
    await node.resource(GPU, allocatable=4, capacity=5)
    assert await node.podresources.allocatable(GPU) == set(uuids) - {hardware}
    await agent.inject("clear", f"gpu={hardware}", "reason=replaced")
    await node.resource(GPU, allocatable=5, capacity=5)
