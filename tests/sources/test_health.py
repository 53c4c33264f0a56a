"""Notes of NVML become facts, from a simulated GPU on."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from reactor.events import (
    DevicesChanged,
    EccReported,
    Fact,
    FaultUnattributed,
    GpuLost,
    RecoveryActionChanged,
    SourceFailed,
    SourceRecovered,
    WorkerLost,
    WorkerStarted,
    XidReported,
)
from reactor.model.condition import WHOLE_GPU, Placement
from reactor.model.gpu import RecoveryAction
from reactor.model.ids import GpuUuid
from reactor.simulate.nvml import codes
from reactor.simulate.nvml.direct import direct
from reactor.simulate.nvml.hardware import Hardware
from reactor.sources.health import HealthSource


class Bench:
    def __init__(self) -> None:
        self.hardware = Hardware("2xH100")
        self.nvml = direct(self.hardware)
        self.facts: list[Fact] = []

    def uuid(self, n: int) -> GpuUuid:
        return GpuUuid(self.hardware.gpus[n].uuid)

    async def told(self) -> list[Fact]:
        await trio.testing.wait_all_tasks_blocked()
        found, self.facts[:] = list(self.facts), []
        return found


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    await nursery.start(bench.nvml.run)
    await nursery.start(HealthSource(bench.nvml, publish=bench.facts.append).run)
    await bench.nvml.scan()
    assert await bench.told() == [WorkerStarted(pid=1)]
    return bench


async def test_an_xid_is_reported_with_its_placement(bench: Bench) -> None:
    bench.hardware.xid(0, 79)
    bench.hardware.xid(1, 94, gi=2, ci=0)
    assert await bench.told() == [
        XidReported(gpu=bench.uuid(0), placement=WHOLE_GPU, xid=79),
        XidReported(gpu=bench.uuid(1), placement=Placement(gi=2, ci=0), xid=94),
    ]


async def test_an_xid_about_the_recovery_action_asks_for_a_look(bench: Bench) -> None:
    bench.hardware.xid(0, 154)
    reported, look = await bench.told()
    assert isinstance(reported, XidReported)
    assert isinstance(look, DevicesChanged)


async def test_other_events_of_a_gpu_are_facts_of_their_own(bench: Bench) -> None:
    """HLT-17, HLT-18"""
    bench.hardware.ecc(0)
    bench.hardware.recovery(1, 4)
    bench.hardware.event(1, codes.UNAVAILABLE)
    ecc, action, lost = await bench.told()
    assert ecc == EccReported(gpu=bench.uuid(0), placement=WHOLE_GPU)
    assert action == RecoveryActionChanged(gpu=bench.uuid(1), action=RecoveryAction.DRAIN_AND_RESET)
    assert isinstance(lost, GpuLost)


async def test_a_change_of_action_that_cannot_be_read_asks_for_a_look(bench: Bench) -> None:
    """HLT-20"""
    bench.hardware.fail("nvmlDeviceGetFieldValues", 999)
    bench.hardware.recovery(1, 1)
    (look,) = await bench.told()
    assert isinstance(look, DevicesChanged)


async def test_an_event_that_cannot_be_attributed_marks_no_gpu(nursery: trio.Nursery) -> None:
    """HLT-14"""
    bench = Bench()
    bench.hardware.fail("nvmlDeviceGetUUID", 999)
    bench.hardware.fail("nvmlDeviceGetPciInfo_v3", 999)
    await nursery.start(bench.nvml.run)
    await nursery.start(HealthSource(bench.nvml, publish=bench.facts.append).run)
    await bench.nvml.scan()
    bench.hardware.xid(0, 79)
    assert (await bench.told())[-1] == FaultUnattributed(what="XID 79 at a device that could not be told")


async def test_a_watch_that_fails_is_a_fault_of_the_source_until_it_works_again(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    """HLT-12"""
    bench.hardware.fail("nvmlEventSetWait_v2", 999)
    await trio.sleep(60)
    look, failed = await bench.told()
    assert isinstance(look, DevicesChanged)
    assert look.what == "event watch restarted"
    assert look.error
    assert isinstance(failed, SourceFailed)
    bench.hardware.mend()
    await trio.sleep(60)
    recovered, look = await bench.told()
    assert isinstance(recovered, SourceRecovered)
    assert isinstance(look, DevicesChanged)


async def test_a_new_worker_ends_the_fault_of_the_watch_of_the_one_before(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    """HLT-12"""
    bench.hardware.fail("nvmlEventSetWait_v2", 999)
    await trio.sleep(60)
    assert isinstance((await bench.told())[-1], SourceFailed)
    bench.hardware.mend()
    await bench.nvml.renew("a test says so")
    started, recovered, look = await bench.told()
    assert started == WorkerStarted(pid=2)
    assert isinstance(recovered, SourceRecovered)
    assert isinstance(look, DevicesChanged)


async def test_a_hung_worker_is_told_and_its_successor_asks_for_a_look(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    """HLT-22"""
    bench.hardware.hang("nvmlDeviceGetMigMode", 1)
    await bench.nvml.scan()
    lost, started, look = await bench.told()
    assert lost == WorkerLost(hung=True, error="no answer within 5 s", gpu_index=1)
    assert started == WorkerStarted(pid=2)
    assert isinstance(look, DevicesChanged)


async def test_a_change_of_the_mig_configuration_asks_for_a_look(bench: Bench) -> None:
    bench.hardware.event(0, codes.MIG)
    (look,) = await bench.told()
    assert isinstance(look, DevicesChanged)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (codes.DOUBLE_BIT_ECC, "double-bit ECC error"),
        (codes.RECOVERY, "change of recovery action"),
        (codes.UNAVAILABLE, "GPU unavailable"),
    ],
)
async def test_an_event_of_an_unknown_gpu_says_where(nursery: trio.Nursery, kind: int, what: str) -> None:
    """HLT-14"""
    bench = Bench()
    bench.hardware.fail("nvmlDeviceGetUUID", 999)
    await nursery.start(bench.nvml.run)
    await nursery.start(HealthSource(bench.nvml, publish=bench.facts.append).run)
    await bench.nvml.scan()
    bench.hardware.event(0, kind)
    assert (await bench.told())[-1] == FaultUnattributed(what=f"{what} at the unknown GPU 0000:04:00.0")


async def test_a_driver_that_leaves_a_gpu_asks_for_a_look(bench: Bench) -> None:
    """HLT-21"""
    bench.hardware.unplug(1)
    (look,) = await bench.told()
    assert isinstance(look, DevicesChanged)
