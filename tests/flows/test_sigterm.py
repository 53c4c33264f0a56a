"""SIGTERM: sources, handlers, servers end in this order; what was listed stays with the kubelet, as Unhealthy."""

from __future__ import annotations

import pytest
import trio

from reactor.events import Advertised, AgentStopping
from reactor.simulate.node import GPU


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_no_list_is_sent_streams_end_and_sockets_go(flow, seen, autojump_clock, version):
    async with flow(version=version, replicas=2) as node:
        await node.settle(10)
        before = len(seen.of(Advertised))
        await node.stop_agent()
        assert len(seen.of(Advertised)) == before
        assert len(seen.of(AgentStopping)) == 1
        assert node.kubelet.sockets == {}
        assert node.kubelet.streams(GPU) == 0


async def test_what_was_listed_stays_with_the_kubelet_with_nothing_allocatable(flow, seen, autojump_clock):
    async with flow(replicas=2) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(3)
        await node.stop_agent()
        await node.until(lambda: node.kubelet.allocatable(GPU) == 0, within=1)
        assert node.kubelet.capacity(GPU) == 4
        assert node.healthy() == set()
        assert node.kubelet.pod("job").phase == "Running"
        assert len(node.kubelet.held(GPU)) == 1


async def test_it_ends_in_time_with_no_kubelet_there(flow, seen, autojump_clock):
    async with flow() as node:
        node.kubelet.kill()
        await node.settle(5)
        before = autojump_clock.current_time()
        await node.stop_agent()
        assert autojump_clock.current_time() - before < 6.1


async def test_it_ends_in_time_while_the_kubelet_reads_nothing(flow, seen, autojump_clock):
    async with flow() as node:
        node.kubelet.weather.shut()
        node.share(4)
        await node.settle(5)
        before = autojump_clock.current_time()
        await node.stop_agent()
        assert autojump_clock.current_time() - before < 6.1
        node.kubelet.weather.open()


async def test_it_ends_in_time_while_the_disk_is_full(flow, seen, autojump_clock):
    async with flow() as node:
        node.disk_fails = "writing state.json: No space left on device"
        node.share(4)
        await trio.sleep(5)
        assert "handler.remember" in node.state.faults
        before = autojump_clock.current_time()
        await node.stop_agent()
        assert autojump_clock.current_time() - before < 6.1
