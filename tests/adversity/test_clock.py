"""The clock of the machine is set while the agent runs: quiet times and waits are those that really pass."""

from __future__ import annotations

import pytest
import trio

from reactor.record.recorder import Recorder
from reactor.simulate.node import sim_node

DAY = 86_400.0
STEPS = pytest.mark.parametrize("step", [-365 * DAY, -DAY, -90.0, 90.0, DAY, 365 * DAY])


@STEPS
async def test_a_quiet_time_neither_ends_early_nor_late(
    recorder: Recorder, autojump_clock: trio.testing.MockClock, step: float
) -> None:
    async with sim_node(recorder) as node:
        node.hardware.xid(0, 999)  # unknown: lifts after 60 quiet seconds
        await node.settle(5)
        node.step_clock(step)
        node.hardware.xid(1, 13)  # an event, so that the step is noticed
        await node.settle(45)
        assert node.unhealthy() == {node.gpu(0)}
        await node.settle(40)
        assert node.unhealthy() == set()


@STEPS
async def test_a_step_lifts_nothing_that_wants_evidence(
    recorder: Recorder, autojump_clock: trio.testing.MockClock, step: float
) -> None:
    async with sim_node(recorder) as node:
        node.hardware.xid(0, 79)
        await node.settle(5)
        for _ in range(3):
            node.step_clock(step)
            await node.settle(120)
            assert node.unhealthy() == {node.gpu(0)}


@STEPS
async def test_relapses_count_within_a_day_that_passed(
    recorder: Recorder, autojump_clock: trio.testing.MockClock, step: float
) -> None:
    async with sim_node(recorder) as node:
        for _ in range(3):
            node.hardware.xid(0, 109)
            await node.settle(10)
            node.hardware.recovery(0, 1)
            await node.settle(10)
            node.hardware.recovery(0, 0)
            await node.settle(10)
            assert node.unhealthy() == set()
        node.step_clock(step)
        await node.settle(60)
        node.hardware.xid(0, 109)
        await node.settle(10)
        (condition,) = node.state.conditions[node.gpu(0)]
        assert condition.needs_person


@STEPS
async def test_ids_leave_five_seconds_after_they_were_shown(
    recorder: Recorder, autojump_clock: trio.testing.MockClock, step: float
) -> None:
    async with sim_node(recorder) as node:
        node.share(4)
        await node.settle(10)
        node.share(2)
        await node.settle(1)
        node.step_clock(step)
        await node.settle(1)
        assert len(node.listed()) == 8
        await node.settle(4)
        assert len(node.listed()) == 4


@STEPS
async def test_a_pod_that_ends_frees_its_id_in_time(
    recorder: Recorder, autojump_clock: trio.testing.MockClock, step: float
) -> None:
    async with sim_node(recorder) as node:
        await node.kubelet.run_pod("job", {"nvidia.com/gpu": 1})
        await node.settle(3)
        node.step_clock(step)
        await node.settle(3)
        assert len(node.state.holds) == 1
        node.kubelet.delete_pod("job")
        await node.settle(40)
        assert node.state.holds == {}
