"""XID: judged once, it marks what it concerns in one list, and nothing else."""

from __future__ import annotations

import pytest

from reactor.model.condition import FaultClass
from reactor.simulate.node import GPU


async def test_every_replica_of_the_gpu_is_marked_in_one_list_and_no_other_gpu(flow, seen, autojump_clock):
    async with flow(replicas=10) as node:
        node.hardware.xid(0, 79)
        await node.settle()
        assert node.unhealthy() == node.shares(0, replicas=10)
        assert node.healthy() == node.shares(1, replicas=10)
        assert seen.sent(GPU) == 2
        await node.settle(300)
        assert seen.sent(GPU) == 2


@pytest.mark.parametrize("code", [13, 31, 45, 94])
async def test_an_xid_of_the_application_marks_nobody(flow, seen, log, autojump_clock, code):
    """HLT-01: the driver has ended the one process that it is about."""
    async with flow() as node:
        node.hardware.xid(0, code)
        await node.settle(5)
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        assert seen.sent(GPU) == 1
        assert [line["xid"] for line in log.of("xid.reported")] == [code]


async def test_an_unknown_xid_marks_until_it_was_quiet_for_a_time(flow, seen, autojump_clock):
    """HLT-32"""
    async with flow() as node:
        node.hardware.xid(0, 999)
        await node.settle(40)
        assert node.unhealthy() == {node.gpu(0)}
        node.hardware.xid(0, 999)
        await node.settle(50)
        assert node.unhealthy() == {node.gpu(0)}, "the quiet time runs from the newest one"
        await node.settle(15)
        assert node.unhealthy() == set()
        assert seen.history(node.gpu(0)) == "HUH"


async def test_a_fault_that_wants_a_reset_is_lifted_by_the_drivers_word_alone(flow, seen, autojump_clock):
    """HLT-02"""
    async with flow() as node:
        node.hardware.xid(0, 109)
        await node.settle(3600)
        assert node.unhealthy() == {node.gpu(0)}
        node.hardware.recovery(0, 1)
        await node.settle(60)
        assert node.unhealthy() == {node.gpu(0)}
        node.hardware.recovery(0, 0)
        await node.settle(1)
        assert node.unhealthy() == set()
        assert seen.history(node.gpu(0)) == "HUH"


async def test_many_of_one_kind_are_one_decision(flow, seen, autojump_clock):
    """XTR-07: the recovery action is none each time, which proves nothing."""
    async with flow(replicas=4) as node:
        for _ in range(5):
            node.hardware.xid(0, 109)
            await node.settle(12)
        assert node.unhealthy() == node.shares(0, replicas=4)
        assert seen.sent(GPU) == 2
        (condition,) = node.state.conditions[node.gpu(0)]
        assert (condition.fault, condition.count) == (FaultClass.RESET, 5)
        await node.settle(3600)
        assert seen.history(node.share_of(0, 0)) == "HU"


async def test_the_third_relapse_in_a_day_needs_a_person(flow, seen, autojump_clock):
    """XTR-07"""
    async with flow() as node:
        for turn in range(4):
            node.hardware.xid(0, 109)
            await node.settle(10)
            node.hardware.recovery(0, 1)
            await node.settle(10)
            node.hardware.recovery(0, 0)
            await node.settle(10)
            assert node.unhealthy() == ({node.gpu(0)} if turn == 3 else set())
        (condition,) = node.state.conditions[node.gpu(0)]
        assert condition.needs_person
        assert seen.history(node.gpu(0)) == "HU" * 4


async def test_an_xid_on_a_gpu_that_a_pod_holds_leaves_the_pod_alone(flow, autojump_clock):
    async with flow() as node:
        pod = await node.kubelet.run_pod("job", {GPU: 2})
        node.hardware.xid(0, 79)
        await node.settle(30)
        assert pod.phase == "Running"
        assert node.unhealthy() == {node.gpu(0)}
        assert set(node.listed()) == {node.gpu(0), node.gpu(1)}


async def test_a_storm_on_one_gpu_delays_no_other(flow, seen, autojump_clock):
    async with flow(gpus="8xH100") as node:
        for _ in range(500):
            node.hardware.xid(0, 45)
        node.hardware.xid(7, 79)
        await node.settle()
        assert node.unhealthy() == {node.gpu(7)}
        assert seen.sent(GPU) == 2
