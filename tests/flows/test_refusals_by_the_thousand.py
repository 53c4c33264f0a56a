"""A pod template that is made again and again for what cannot be given: answered each time, told of in few lines."""

from __future__ import annotations

import trio

from reactor.model.ids import DeviceId
from reactor.model.kubelet import Refusal
from reactor.simulate.node import GPU


async def test_a_thousand_requests_for_an_unknown_id_change_no_health(flow, seen, log, autojump_clock):
    """XTR-10"""
    async with flow() as node:
        await refused(node, DeviceId("GPU-of-another-plugin"))
        assert seen.sent(GPU) == 1
        assert node.state.faults == {}
        assert len(log.of("allocation.refused")) + len(log.of("log.coalesced")) < 100


async def test_a_thousand_requests_for_a_gpu_that_failed_make_one_condition(flow, seen, log, autojump_clock):
    """XTR-10"""
    async with flow() as node:
        node.hardware.xid(0, 79)
        await node.settle(1)
        await refused(node, node.gpu(0))
        assert seen.sent(GPU) == 2
        assert len(node.state.conditions[node.gpu(0)]) == 1
        assert len(log.of("gpu.condemned")) == 1
        assert len(log.of("allocation.refused")) + len(log.of("log.coalesced")) < 100


async def refused(node, one):
    for _ in range(1000):
        assert isinstance(node.desk.allocate(GPU, [[one]]), Refusal)
        await trio.sleep(0.06)
    await node.settle(1)
