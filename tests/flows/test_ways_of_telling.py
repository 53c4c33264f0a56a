"""How containers are told their devices is changed in the config, and the next pod is told so."""

from __future__ import annotations

from reactor.simulate.node import GPU

ROOT = "/var/run/nvidia-container-devices"


def plugin(text: str) -> str:
    return f"version: v1\nflags: {{plugin: {{{text}}}}}\n"


async def told(node, name: str) -> dict[str, str]:
    """Devices of a new pod with one GPU, as its container sees them."""
    pod = await node.kubelet.run_pod(name, {GPU: 1})
    (options,) = (await node.kubelet.core.start(pod)).values()
    return options.envs | {mount.container: mount.host for mount in options.mounts.values()}


async def test_the_next_pod_is_told_in_the_new_way_and_the_list_stays(flow, seen, autojump_clock):
    async with flow(gpus="4xH100") as node:
        assert await told(node, "a") == {"NVIDIA_VISIBLE_DEVICES": node.gpu(0)}
        node.edit_config(plugin("deviceIDStrategy: index"))
        await node.settle()
        assert await told(node, "b") == {"NVIDIA_VISIBLE_DEVICES": "1"}
        node.edit_config(plugin("deviceListStrategy: volume-mounts"))
        await node.settle()
        assert await told(node, "c") == {"NVIDIA_VISIBLE_DEVICES": ROOT, f"{ROOT}/{node.gpu(2)}": "/dev/null"}
        assert seen.sent(GPU) == 1


async def test_nothing_is_advertised_while_no_way_is_served(flow, autojump_clock):
    async with flow() as node:
        node.edit_config(plugin("deviceListStrategy: cdi-cri"))
        await node.settle(10)
        assert node.listed() == {}
        node.edit_config(plugin("deviceListStrategy: [cdi-cri, volume-mounts]"))
        await node.settle(10)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}


async def test_packed_shares_go_to_one_gpu(flow, autojump_clock):
    """SHR-01"""
    async with flow(replicas=4) as node:
        node.share(4, more="flags: {plugin: {sharedDevicesAllocationPolicy: packed}}\n")
        await node.settle()
        for name in "abcd":
            await node.kubelet.run_pod(name, {GPU: 1})
        assert node.kubelet.held(GPU) == node.shares(0, replicas=4)


async def test_a_required_channel_that_is_missing_keeps_the_gpus_back(flow, autojump_clock):
    async with flow(config="imex: {channelIDs: [0], required: true}\n") as node:
        assert node.unhealthy() == {node.gpu(0), node.gpu(1)}
        assert "no GPU is handed out" in node.state.faults["imex.channel"].message
        node.edit_config("imex: {channelIDs: [0]}\n")
        await node.settle()
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert "containers are given none" in node.state.faults["imex.channel"].message
        node.edit_config("version: v1\n")
        await node.settle()
        assert "imex.channel" not in node.state.faults


async def test_a_channel_that_comes_is_given_to_the_next_pod(flow, autojump_clock, tmp_path):
    channel = tmp_path / "dev/nvidia-caps-imex-channels/channel0"
    async with flow(config="imex: {channelIDs: [0], required: true}\n", numa=True) as node:
        assert node.healthy() == set()
        channel.parent.mkdir()
        channel.touch()
        await node.settle(60)
        assert node.state.faults == {}
        assert await told(node, "a") == {"NVIDIA_VISIBLE_DEVICES": node.gpu(0), "NVIDIA_IMEX_CHANNELS": "0"}
