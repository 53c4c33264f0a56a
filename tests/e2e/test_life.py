"""The agent's life on a real node, as a process over simulated GPUs: served, allocated, seen, condemned, kept."""

from __future__ import annotations

from tests.e2e.api import Object
from tests.e2e.node import GPU, Node, health, reason
from tests.e2e.versions import EVERY_KUBELET

DEVICES = {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}
SHARED = """
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, replicas: 4}
"""
BY_PRODUCT = """
version: v1
resources:
  gpus:
  - {pattern: "*T4*", name: nvidia.com/t4}
  - {pattern: "*", name: nvidia.com/gpu}
"""
SPECS = "version: v1\nflags: {plugin: {passDeviceSpecs: true}}\n"
MOUNTS = "version: v1\nflags: {plugin: {deviceListStrategy: volume-mounts}}\n"


def visible(environment: dict[str, str]) -> set[str]:
    return set(environment["NVIDIA_VISIBLE_DEVICES"].split(","))


def insufficient(pod: Object) -> bool:
    return "Insufficient nvidia.com/gpu" in reason(pod)


async def test_an_agent_that_was_there_first_is_heard_when_the_kubelet_comes(node: Node):
    await node.kubelet.stop()
    agent = await node.start_agent("8xH100")
    await agent.event("inventory.taken")
    node.kubelet.start()
    await agent.event("agent.settled")
    await node.resource(GPU, allocatable=8, capacity=8)


@EVERY_KUBELET
async def test_pods_get_as_many_gpus_as_they_ask_for_and_no_two_the_same(node: Node):
    await node.start_agent("8xH100")
    await node.resource(GPU, allocatable=8, capacity=8)
    await node.run_pod("one", {GPU: 1})
    await node.run_pod("two", {GPU: 2})
    held = await node.podresources.held(GPU)
    assert {name: len(ids) for name, ids in held.items()} == {"one": 1, "two": 2}
    assert held["one"].isdisjoint(held["two"])
    for name, ids in held.items():
        assert visible((await node.inside(name)).environment) == ids


async def test_a_pod_may_have_all_gpus_and_nobody_more_than_there_are(node: Node):
    await node.start_agent("8xH100")
    await node.resource(GPU, allocatable=8, capacity=8)
    await node.create_pod("nine", {GPU: 9})
    await node.pod("nine", insufficient)
    await node.run_pod("eight", {GPU: 8})
    assert visible((await node.inside("eight")).environment) == await node.podresources.allocatable(GPU)
    await node.create_pod("one", {GPU: 1})
    await node.pod("one", insufficient)
    await node.delete_pod("eight")
    await node.running("one")


async def test_pods_share_a_gpu_under_its_shared_name(node: Node):
    await node.start_agent("1xH100", config=SHARED)
    await node.resource(f"{GPU}.shared", allocatable=4, capacity=4)
    for name in ("one", "two"):
        await node.run_pod(name, {f"{GPU}.shared": 1})
    one, two = [await node.inside(name) for name in ("one", "two")]
    assert visible(one.environment) == visible(two.environment)
    held = await node.podresources.held(f"{GPU}.shared")
    assert held["one"].isdisjoint(held["two"])


async def test_a_pod_may_have_two_resources(node: Node):
    await node.start_agent("2xH100+2xT4", config=BY_PRODUCT)
    await node.resource(GPU, allocatable=2, capacity=2)
    await node.resource("nvidia.com/t4", allocatable=2, capacity=2)
    await node.run_pod("both", {GPU: 1, "nvidia.com/t4": 2})
    holders = await node.podresources.holders()
    assert len(holders[GPU]["default/both/c"]) == 1
    assert holders["nvidia.com/t4"]["default/both/c"] == await node.podresources.allocatable("nvidia.com/t4")


async def test_a_container_sees_the_device_nodes_of_its_gpus_only(node: Node):
    await node.start_agent("2xH100", config=SPECS)
    await node.resource(GPU, allocatable=2, capacity=2)
    await node.run_pod("both", {GPU: 2})
    assert {each for each in (await node.inside("both")).devices if each.startswith("nvidia")} == DEVICES
    await node.delete_pod("both")
    await node.run_pod("one", {GPU: 1})
    seen = await node.inside("one")
    assert len(DEVICES & seen.devices) == len(DEVICES) - 1
    await node.run_pod("none")
    assert not DEVICES & (await node.inside("none")).devices


async def test_a_container_is_told_its_gpus_by_mounts_where_that_is_asked_for(node: Node):
    await node.start_agent("2xH100", config=MOUNTS)
    await node.resource(GPU, allocatable=2, capacity=2)
    await node.run_pod("one", {GPU: 1})
    seen = await node.inside("one")
    (mine,) = (await node.podresources.held(GPU))["one"]
    told = "/var/run/nvidia-container-devices"
    assert {each for each in seen.mounts if "nvidia" in each} == {f"{told}/{mine}"}
    assert seen.environment["NVIDIA_VISIBLE_DEVICES"] == told


async def test_a_fault_of_a_held_gpu_shows_on_its_pod_and_on_the_node_until_it_is_mended(node: Node):
    agent = await node.start_agent("4xH100")
    await node.resource(GPU, allocatable=4, capacity=4)
    await node.run_pod("two", {GPU: 2})
    sick = min((await node.podresources.held(GPU))["two"])
    await node.pod("two", lambda pod: set(health(pod).values()) == {"Healthy"} and len(health(pod)) == 2)
    await agent.gpus("xid", sick, 79)
    await node.resource(GPU, allocatable=3, capacity=4)
    pod = await node.pod("two", lambda pod: "Unhealthy" in health(pod).values())
    assert {identity for identity, told in health(pod).items() if told == "Unhealthy"} == {sick}
    assert sick not in await node.podresources.allocatable(GPU)
    await agent.inject("clear", f"gpu={sick}", "reason=mended")
    await node.resource(GPU, allocatable=4, capacity=4)
    await node.pod("two", lambda pod: set(health(pod).values()) == {"Healthy"})
    await node.running("two")


@EVERY_KUBELET
async def test_a_kubelet_that_restarts_finds_the_gpus_with_the_pods_that_have_them(node: Node):
    agent = await node.start_agent("4xH100")
    await node.resource(GPU, allocatable=4, capacity=4)
    await node.run_pod("two", {GPU: 2})
    before, seen = await node.podresources.held(GPU), await node.inside("two")
    mark = agent.log.mark()
    await node.kubelet.restart()
    await agent.event("plugin.registered", since=mark)
    await node.podresources.shows(GPU, lambda ids: len(ids) == 4)
    await node.resource(GPU, allocatable=4, capacity=4)
    await node.run_pod("rest", {GPU: 2})
    held = await node.podresources.held(GPU)
    assert held["two"] == before["two"]
    assert held["two"].isdisjoint(held["rest"])
    assert (await node.inside("two")).pid == seen.pid
