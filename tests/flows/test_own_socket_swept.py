"""Own socket swept: a plugin whose file is gone cannot be found again, so it is served anew before that matters."""

from __future__ import annotations

import pytest

from reactor.events import PluginSocketGone
from reactor.simulate.node import GPU


async def test_a_file_removed_under_a_live_stream_costs_nothing(flow, seen, autojump_clock):
    """The stream lives on: nothing is registered before it ends."""
    async with flow() as node:
        node.kubelet.sweep_sockets()
        await node.settle(30)
        assert len(seen.of(PluginSocketGone)) == 1
        assert node.kubelet.streams(GPU) == 1
        assert seen.sent(GPU) == 1


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_the_next_life_finds_a_fresh_socket(flow, seen, autojump_clock, version):
    """KBL-04"""
    async with flow(version=version) as node:
        node.kubelet.sweep_sockets()
        await node.settle(30)
        await node.kubelet.restart(2.0)
        await node.settle(2)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        (socket,) = node.kubelet.sockets
        assert node.state.kubelet.plugins[GPU].socket == socket


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_swept_between_the_wipe_and_our_registration(flow, seen, autojump_clock, version):
    """KBL-04: somebody clears the directory while the kubelet is slow to answer Register."""
    async with flow(version=version) as node:
        node.kubelet.weather.register_delay = 1.0
        await node.kubelet.restart(1.0)
        await node.settle(0.5)
        node.kubelet.sweep_sockets()
        await node.settle(30)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert node.kubelet.streams(GPU) == 1


async def test_the_stream_of_a_swept_socket_ends(flow, seen, autojump_clock):
    async with flow() as node:
        node.kubelet.sweep_sockets()
        await node.settle(5)
        node.kubelet.reset_stream(GPU)
        await node.until(lambda: len(node.healthy()) == 2 and node.kubelet.streams(GPU) == 1, within=5)
