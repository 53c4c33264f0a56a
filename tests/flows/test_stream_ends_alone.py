"""Stream ends alone: the kubelet lives, so it is registered with again, on a fresh socket."""

from __future__ import annotations

import pytest

from reactor.events import PluginRegistered
from reactor.simulate.node import GPU

VERSIONS = pytest.mark.parametrize("version", ["1.29", "1.34", "1.36", "1.37"])


@VERSIONS
async def test_it_is_back_within_five_seconds(flow, seen, autojump_clock, version):
    """KBL-02"""
    async with flow(version=version) as node:
        node.kubelet.reset_stream(GPU)
        await node.settle()
        await node.until(lambda: node.kubelet.allocatable(GPU) == 2, within=5)
        await node.settle(30)
        assert node.kubelet.streams(GPU) == 1
        assert len(seen.of(PluginRegistered)) == 2


async def test_after_idle_hours(flow, seen, autojump_clock):
    """KBL-20"""
    async with flow() as node:
        await node.settle(3 * 3600)
        assert seen.sent(GPU) == 1
        node.kubelet.reset_stream(GPU)
        await node.settle()
        await node.until(lambda: node.kubelet.allocatable(GPU) == 2, within=5)


@pytest.mark.parametrize("notice", [0.5, 3.0])
async def test_a_kubelet_that_notices_late_is_registered_with_on_another_socket(flow, seen, autojump_clock, notice):
    """From 1.37 on a Register for a socket that is thought alive is refused, then and for ever after."""
    async with flow(version="1.37", end_notice=notice) as node:
        node.kubelet.reset_stream(GPU)
        await node.settle(10)
        assert node.kubelet.allocatable(GPU) == 2
        assert node.kubelet.streams(GPU) == 1


@VERSIONS
async def test_streams_that_end_again_and_again(flow, seen, autojump_clock, version):
    async with flow(version=version) as node:
        for _ in range(10):
            node.kubelet.reset_stream(GPU)
            await node.settle(2)
        await node.settle(5)
        assert node.kubelet.allocatable(GPU) == 2
        assert len(node.kubelet.sockets) == len(node.desk.streams) == 1


async def test_the_stream_of_one_resource_ends_and_the_other_one_is_left_alone(flow, seen, autojump_clock):
    config = (
        "version: v1\nresources: {gpus: [{pattern: '*H100*', name: nvidia.com/h100},"
        " {pattern: '*T4*', name: nvidia.com/t4}]}\n"
    )
    async with flow(gpus="1xH100+1xT4", config=config) as node:
        (stream,) = node.state.kubelet.plugins["nvidia.com/t4"].streams
        node.kubelet.reset_stream("nvidia.com/h100")
        await node.settle(5)
        assert len(node.healthy("nvidia.com/h100")) == 1
        assert node.state.kubelet.plugins["nvidia.com/t4"].streams == {stream}
        assert seen.sent("nvidia.com/t4") == 1


async def test_a_pod_that_holds_keeps_its_id_through_it(flow, seen, autojump_clock):
    async with flow(numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        node.share(2)
        await node.settle(3)
        node.kubelet.reset_stream(GPU)
        await node.settle(10)
        assert {one for _, one in seen.owned()} <= node.unhealthy()
