"""What a container sees of its GPUs, for every way of telling that is served, each asked for while others run."""

from __future__ import annotations

from tests.e2e.agent import Agent
from tests.e2e.node import GPU, Inside, Node

TOLD = "/var/run/nvidia-container-devices"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
T4 = "nvidia.com/t4"
BY_PRODUCT = f'resources: {{gpus: [{{pattern: "*T4*", name: {T4}}}, {{pattern: "*", name: {GPU}}}]}}\n'
MOUNTS = "flags: {plugin: {deviceListStrategy: volume-mounts}}\n"
SHARED = f"sharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: 2}}]}}}}\n"


def plugin(*settings: str) -> str:
    return f"version: v1\nflags: {{plugin: {{{', '.join(settings)}}}}}\n"


async def told(node: Node, name: str) -> tuple[Inside, str]:
    """What a new pod with one GPU sees, and the GPU that it has."""
    await node.run_pod(name, {GPU: 1})
    (gpu,) = (await node.podresources.held(GPU))[name]
    return await node.inside(name), gpu


async def edit(agent: Agent, *settings: str) -> None:
    mark = agent.log.mark()
    agent.write_config(plugin(*settings))
    await agent.event("config.applied", since=mark)


def mounted(seen: Inside) -> set[str]:
    return {each for each in seen.mounts if "nvidia" in each}


def devices(seen: Inside) -> set[str]:
    return {each for each in seen.devices if each.startswith("nvidia")}


async def test_each_pod_is_told_its_gpu_in_the_way_that_was_asked_for_when_it_began(node: Node):
    agent = await node.start_agent("5xH100", config=plugin("deviceIDStrategy: index"))
    await node.resource(GPU, allocatable=5, capacity=5)
    index = {gpu["uuid"]: str(gpu["index"]) for gpu in (await agent.answers())["gpus"]}
    by_index, first = await told(node, "by-index")
    assert by_index.environment[VISIBLE] == index[first]

    await edit(agent, "deviceListStrategy: volume-mounts")
    by_mount, second = await told(node, "by-mount")
    assert by_mount.environment[VISIBLE] == TOLD
    assert mounted(by_mount) == {f"{TOLD}/{second}"}

    await edit(agent, "deviceListStrategy: volume-mounts", "deviceIDStrategy: index", "passDeviceSpecs: true")
    by_all, third = await told(node, "by-all")
    assert f"{TOLD}/{index[third]}" in mounted(by_all)
    assert set(index.values()) & {name.removeprefix("nvidia") for name in devices(by_all)} == {index[third]}

    await edit(agent, "deviceListStrategy: envvar")
    plain, fourth = await told(node, "plain")
    assert plain.environment[VISIBLE] == fourth
    assert mounted(plain) == devices(plain) == set()

    again = await node.inside("by-index")
    assert (again.pid, again.environment[VISIBLE]) == (by_index.pid, index[first])
    assert len({first, second, third, fourth}) == 4
    _, *lists = agent.log.of("devices.advertised")
    # One may be sent again, unchanged, to hear what became of the pods of a test before this one.
    assert not any(line[what] for line in lists for what in ("added", "removed", "turned"))


async def test_a_container_with_two_resources_is_told_of_both_by_mounts(node: Node):
    """The variable that names GPUs would be set twice, and the kubelet keeps either: a mount each has room for both."""
    agent = await node.start_agent("1xH100+1xT4", config=f"{BY_PRODUCT}{MOUNTS}")
    await node.resource(GPU, allocatable=1, capacity=1)
    await node.resource(T4, allocatable=1, capacity=1)
    await node.run_pod("both", {GPU: 1, T4: 1})
    uuids = {gpu["uuid"] for gpu in (await agent.answers())["gpus"]}
    assert mounted(await node.inside("both")) == {f"{TOLD}/{uuid}" for uuid in uuids}


async def test_a_container_with_two_shares_of_a_gpu_is_told_of_it_once(node: Node):
    """SHR-03"""
    await node.start_agent("1xH100", config=SHARED)
    await node.resource(GPU, allocatable=2, capacity=2)
    await node.run_pod("both", {GPU: 2})
    first, second = (await node.podresources.held(GPU))["both"]
    (uuid,) = {first.partition("::")[0], second.partition("::")[0]}
    assert (await node.inside("both")).environment[VISIBLE] == uuid
