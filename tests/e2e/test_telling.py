"""What a container sees of its GPUs, for every way of telling that is served, each asked for while others run."""

from __future__ import annotations

from tests.e2e.agent import Agent
from tests.e2e.node import GPU, Inside, Node, reason

TOLD = "/var/run/nvidia-container-devices"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
T4 = "nvidia.com/t4"
BY_PRODUCT = f'resources: {{gpus: [{{pattern: "*T4*", name: {T4}}}, {{pattern: "*", name: {GPU}}}]}}\n'
MOUNTS = "flags: {plugin: {deviceListStrategy: volume-mounts}}\n"
CHANNELS = "NVIDIA_IMEX_CHANNELS"
CHANNEL = "nvidia-caps-imex-channels/channel0"
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
    index = {gpu["uuid"]: str(gpu["index"]) for gpu in (await agent.state())["gpus"]}
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


async def test_what_the_runtime_is_to_bring_beside_the_gpu_is_asked_for(node: Node):
    """GDRCopy, GPUDirect Storage and the devices of Mellanox, all of which the container runtime looks for."""
    agent = await node.start_agent("3xH100", config=plugin())
    await node.resource(GPU, allocatable=3, capacity=3)
    modes = {"NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"}
    before, _ = await told(node, "before")
    assert not modes & set(before.environment)
    mark = agent.log.mark()
    agent.write_config("version: v1\nflags: {gdrcopyEnabled: true, gdsEnabled: true, mofedEnabled: true}\n")
    await agent.event("config.applied", since=mark)
    after, _ = await told(node, "after")
    assert {name: after.environment.get(name) for name in modes} == dict.fromkeys(modes, "enabled")


async def test_an_imex_channel_is_given_in_the_way_that_gpus_are(node: Node):
    """IMEX: a node is in a domain or not, so that each container with a GPU has the channel that the config names."""
    hardware = await node.start_gpus("3xH100")
    channel = hardware.folder / "dev" / CHANNEL
    channel.parent.mkdir()
    channel.touch()
    imex = "imex: {channelIDs: [0], required: true}\n"
    agent = await node.start_agent(hardware, config=plugin() + imex)
    await node.resource(GPU, allocatable=3, capacity=3)
    plain, _ = await told(node, "plain")
    assert plain.environment[CHANNELS] == "0"
    assert CHANNEL not in plain.devices

    mark = agent.log.mark()
    agent.write_config(plugin("deviceListStrategy: volume-mounts", "passDeviceSpecs: true") + imex)
    await agent.event("config.applied", since=mark)
    mounts, gpu = await told(node, "mounts")
    assert mounted(mounts) >= {f"{TOLD}/{gpu}", f"{TOLD}/imex/0"}
    assert CHANNELS not in mounts.environment
    assert CHANNEL in mounts.devices


async def test_a_required_imex_channel_that_is_missing_keeps_pods_waiting(node: Node):
    """The channel is there late, as the driver's devices may be: pods then start, and none did without it."""
    agent = await node.start_agent("1xH100", config="version: v1\nimex: {channelIDs: [0], required: true}\n")
    await node.resource(GPU, allocatable=0, capacity=1)
    await node.create_pod("waits", {GPU: 1})
    await node.pod("waits", lambda pod: "Insufficient" in reason(pod))
    channel = agent.gpus.folder / "dev" / CHANNEL
    channel.parent.mkdir()
    channel.touch()
    await agent.inject("rescan")
    await node.running("waits")
    assert (await node.inside("waits")).environment[CHANNELS] == "0"


async def test_a_container_with_two_resources_is_told_of_both_by_mounts(node: Node):
    """The variable that names GPUs would be set twice, and the kubelet keeps either: a mount each has room for both."""
    agent = await node.start_agent("1xH100+1xT4", config=f"{BY_PRODUCT}{MOUNTS}")
    await node.resource(GPU, allocatable=1, capacity=1)
    await node.resource(T4, allocatable=1, capacity=1)
    await node.run_pod("both", {GPU: 1, T4: 1})
    uuids = {gpu["uuid"] for gpu in (await agent.state())["gpus"]}
    assert mounted(await node.inside("both")) == {f"{TOLD}/{uuid}" for uuid in uuids}


async def test_a_container_with_two_shares_of_a_gpu_is_told_of_it_once(node: Node):
    """SHR-03"""
    await node.start_agent("1xH100", config=SHARED)
    await node.resource(GPU, allocatable=2, capacity=2)
    await node.run_pod("both", {GPU: 2})
    first, second = (await node.podresources.held(GPU))["both"]
    (uuid,) = {first.partition("::")[0], second.partition("::")[0]}
    assert (await node.inside("both")).environment[VISIBLE] == uuid
