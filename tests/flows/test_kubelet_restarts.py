"""Kubelet restarts: a new life is seen, registered with once, and shown the full list."""

from __future__ import annotations

import pytest

from reactor.events import PluginRegistered
from reactor.simulate.node import GPU

VERSIONS = pytest.mark.parametrize("version", ["1.29", "1.33", "1.34", "1.37"])


@VERSIONS
@pytest.mark.parametrize("graceful", [False, True])
async def test_one_registration_a_life_and_the_full_list(flow, seen, autojump_clock, version, graceful):
    async with flow(version=version) as node:
        await node.settle(30)
        await node.kubelet.restart(5.0, graceful=graceful)
        await node.settle(1)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert node.kubelet.allocatable(GPU) == 2
        assert node.kubelet.streams(GPU) == 1
        assert len(seen.of(PluginRegistered)) == 2
        await node.settle(60)
        assert len(seen.of(PluginRegistered)) == 2


@VERSIONS
async def test_a_restart_in_no_time_is_seen_by_the_end_of_the_stream(flow, seen, autojump_clock, version):
    async with flow(version=version) as node:
        await node.settle(30)
        await node.kubelet.restart()
        await node.until(lambda: len(node.healthy()) == 2, within=1)
        await node.settle(30)
        assert node.kubelet.streams(GPU) == 1
        assert len(seen.of(PluginRegistered)) == 2


@VERSIONS
async def test_the_kubelets_socket_made_anew_just_after_our_registration(flow, seen, autojump_clock, version):
    """KBL-01"""
    async with flow(version=version, started=False) as node:
        await node.kubelet.start()
        await node.start_agent()
        await node.until(lambda: len(node.healthy()) == 2, within=1)
        await node.settle(0.05)
        await node.kubelet.restart()
        await node.settle(5)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert len(seen.of(PluginRegistered)) == 2


async def test_a_kubelet_that_comes_late_is_waited_for(flow, seen, autojump_clock):
    """KBL-10"""
    async with flow(started=False) as node:
        await node.start_agent()
        await node.settle(90)
        assert node.state.scanned_at is not None
        assert node.state.faults.keys() <= {"podresources.list", "checkpoint"}
        await node.kubelet.start()
        await node.until(lambda: len(node.healthy()) == 2, within=1.5)
        assert len(seen.of(PluginRegistered)) == 1


@VERSIONS
async def test_fifty_restarts_one_second_apart(flow, seen, autojump_clock, version):
    """KBL-21"""
    async with flow(version=version) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        for _ in range(50):
            await node.kubelet.restart(0.01)
            await node.settle(1)
            assert len(node.listed()) == 2
        await node.settle(10)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert len(node.desk.streams) == len(node.kubelet.sockets) == node.kubelet.streams(GPU) == 1
        assert len(seen.of(PluginRegistered)) == 51


@VERSIONS
async def test_registers_that_are_refused_are_repeated(flow, seen, autojump_clock, version):
    async with flow(version=version) as node:
        node.kubelet.weather.refuse_register = 4
        await node.kubelet.restart(1.0)
        await node.settle(8)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert not [name for name in node.state.faults if name.startswith("handler.")]


@VERSIONS
async def test_a_slow_register_is_not_repeated_meanwhile(flow, seen, autojump_clock, version):
    async with flow(version=version) as node:
        node.kubelet.weather.register_delay = 3.0
        await node.kubelet.restart(1.0)
        await node.settle(20)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert node.kubelet.streams(GPU) == 1


async def test_pods_and_health_of_before_are_in_the_first_list_of_the_new_life(flow, seen, autojump_clock):
    async with flow(numa=True, replicas=2) as node:
        await node.kubelet.run_pod("job", {GPU: 3})
        node.hardware.xid(0, 79)
        await node.settle(2)
        node.share(0)
        await node.settle(10)
        await node.kubelet.restart(1.0)
        await node.settle(1)
        first = seen.first(GPU, life=2)
        held = {one for _, one in seen.owned()}
        assert len(held) == 3
        assert held <= first.ids.keys()
        assert not first.ids[node.gpu(0)]


async def test_config_edited_while_the_kubelet_is_down(flow, seen, autojump_clock):
    """Nobody is there to be shown the old ids: the first list is the new one."""
    async with flow(replicas=2) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(2)
        (held,) = {one for _, one in seen.owned()}
        node.kubelet.kill()
        await node.settle(1)
        node.share(0)
        await node.settle(5)
        await node.kubelet.start()
        await node.settle(1)
        assert set(seen.first(GPU, life=2).ids) == {node.gpu(0), node.gpu(1), held}
