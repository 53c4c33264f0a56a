"""Scans and events through nvidia-ml-py's own code, over simulated functions in the same process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from reactor.model.gpu import DriverState, FailureKind, MigMode, RecoveryAction
from reactor.nvml import NvmlUnavailable
from reactor.nvml.direct import DirectNvml
from reactor.nvml.notes import (
    DriverEvent,
    Ecc,
    Note,
    RecoveryChanged,
    WatchFailed,
    WatchRecovered,
    WatchRestarted,
    WorkerGone,
    WorkerUp,
    Xid,
)
from reactor.simulate.nvml import codes
from reactor.simulate.nvml.direct import direct
from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware


class Bench:
    def __init__(self, hardware: Hardware, nvml: DirectNvml) -> None:
        self.hardware = hardware
        self.nvml = nvml

    async def quiet(self) -> list[Note]:
        """Notes so far, once nothing moves any more."""
        await trio.testing.wait_all_tasks_blocked()
        found: list[Note] = []
        while True:
            try:
                found.append(self.nvml.notes.receive_nowait())
            except trio.WouldBlock:
                return [note for note in found if not isinstance(note, WorkerUp)]


Start = Callable[..., "trio.abc.AsyncResource"]


@pytest.fixture
async def start(nursery: trio.Nursery, tmp_path: Path):
    async def start(spec: str = "8xH100", **options: object) -> Bench:
        hardware = Hardware(spec, **options)
        lay_out(hardware, tmp_path)
        nvml = direct(hardware, tmp_path)
        await nursery.start(nvml.run)
        return Bench(hardware, nvml)

    return start


async def test_a_scan_tells_all_about_each_gpu(start) -> None:
    bench = await start("1xH100+1xT4")
    found = await bench.nvml.scan()
    h100, t4 = found.gpus
    assert found.driver.version == "580.95.05"
    assert found.driver.cuda == (13, 0)
    assert found.generation == 1
    assert not found.failures
    assert found.nodes >= {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert (h100.index, h100.minor, h100.pci, h100.product) == (0, 0, "0000:04:00.0", "NVIDIA H100 80GB HBM3")
    assert (h100.memory, h100.compute, h100.numa) == (81559 << 20, (9, 0), 0)
    assert (h100.mig, h100.recovery, h100.monitored) == (MigMode.DISABLED, RecoveryAction.NONE, True)
    assert (t4.mig, t4.recovery, t4.compute, t4.numa) == (MigMode.UNSUPPORTED, None, (7, 5), 1)


async def test_uuids_are_the_same_in_the_next_life_of_the_node(start) -> None:
    assert [gpu.uuid for gpu in Hardware("4xH100").gpus] == [gpu.uuid for gpu in Hardware("4xH100").gpus]


async def test_minors_are_those_of_the_driver_not_the_indices(start) -> None:
    """ALC-03"""
    bench = await start("2xH100", minors=[3, 0])
    assert [(gpu.index, gpu.minor) for gpu in (await bench.nvml.scan()).gpus] == [(0, 3), (1, 0)]


async def test_an_xid_is_noted_with_its_place(start) -> None:
    bench = await start("2xH100")
    found = await bench.nvml.scan()
    bench.hardware.xid(1, 79)
    bench.hardware.xid(0, 94, gi=3, ci=0)
    whole, part = await bench.quiet()
    assert whole == Xid(gpu=found.gpus[1].uuid, pci=found.gpus[1].pci, code=79)
    assert part == Xid(gpu=found.gpus[0].uuid, pci=found.gpus[0].pci, gi=3, ci=0, code=94)


async def test_an_xid_between_registration_and_the_look_is_not_missed(start) -> None:
    """HLT-16"""
    bench = await start("2xH100")
    hardware: Hardware = bench.hardware
    seen: list[str] = []
    answer = hardware.call

    def call(session: int, function: str, arguments: list[codes.Value]) -> tuple[int, list[codes.Value]]:
        if function == "nvmlDeviceGetUUID" and not seen:
            seen.append(function)
            hardware.xid(1, 79)
        return answer(session, function, arguments)

    hardware.call = call  # the moment before the first GPU is looked at
    found = await bench.nvml.scan()
    assert [note.gpu for note in await bench.quiet() if isinstance(note, Xid)] == [found.gpus[1].uuid]


async def test_a_double_bit_ecc_error_without_an_xid_is_noted(start) -> None:
    """HLT-17"""
    bench = await start("1xH100")
    found = await bench.nvml.scan()
    bench.hardware.ecc(0)
    assert await bench.quiet() == [Ecc(gpu=found.gpus[0].uuid, pci=found.gpus[0].pci)]


async def test_a_recovery_action_is_noted_when_it_changes_and_when_it_ends(start) -> None:
    """HLT-18"""
    bench = await start("1xH100")
    gpu = (await bench.nvml.scan()).gpus[0]
    bench.hardware.recovery(0, 1)
    assert await bench.quiet() == [RecoveryChanged(gpu=gpu.uuid, pci=gpu.pci, action=RecoveryAction.RESET)]
    assert (await bench.nvml.scan()).gpus[0].recovery is RecoveryAction.RESET
    bench.hardware.recovery(0, 0)
    assert await bench.quiet() == [RecoveryChanged(gpu=gpu.uuid, pci=gpu.pci, action=RecoveryAction.NONE)]


async def test_a_recovery_query_that_fails_is_not_read_as_none(start) -> None:
    """HLT-20"""
    bench = await start("1xH100")
    bench.hardware.fail("nvmlDeviceGetFieldValues", 999)
    assert (await bench.nvml.scan()).gpus[0].recovery is None


async def test_a_lost_gpu_is_lost_although_its_memory_query_answers(start) -> None:
    """HLT-05"""
    bench = await start("2xH100")
    before = await bench.nvml.scan()
    bench.hardware.lose(0)
    found = await bench.nvml.scan()
    assert [gpu.index for gpu in found.gpus] == [1]
    assert [(f.index, f.kind, f.uuid, f.pci) for f in found.failures] == [
        (0, FailureKind.LOST, before.gpus[0].uuid, before.gpus[0].pci)
    ]


@pytest.mark.parametrize("function", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID", "nvmlDeviceGetFieldValues"])
async def test_a_gpu_that_needs_a_reset_says_so_by_whatever_query(start, function: str) -> None:
    """HLT-06"""
    bench = await start("2xH100")
    bench.hardware.fail(function, 16, 0)
    found = await bench.nvml.scan()
    assert [(f.index, f.kind) for f in found.failures] == [(0, FailureKind.RESET_REQUIRED)]


async def test_a_gpu_without_xid_events_is_served_unmonitored(start) -> None:
    """HLT-10"""
    bench = await start("2xH100")
    bench.hardware.fail("nvmlDeviceRegisterEvents", 3, 0)
    found = await bench.nvml.scan()
    assert [gpu.monitored for gpu in found.gpus] == [False, True]
    assert not found.failures


async def test_a_wait_that_fails_for_ever_condemns_nobody_and_backs_off(start, autojump_clock) -> None:
    """HLT-12"""
    bench = await start("2xH100")
    await bench.nvml.scan()
    bench.hardware.fail("nvmlEventSetWait_v2", 999)
    await trio.sleep(300)
    restarted, failed = await bench.quiet()
    assert isinstance(restarted, WatchRestarted)
    assert isinstance(failed, WatchFailed)
    assert len((await bench.nvml.scan()).gpus) == 2
    bench.hardware.mend()
    await trio.sleep(60)
    bench.hardware.xid(1, 79)
    recovered, xid = await bench.quiet()
    assert recovered == WatchRecovered()
    assert isinstance(xid, Xid)


async def test_waits_that_time_out_are_silent(start) -> None:
    """HLT-13"""
    bench = await start("1xH100")
    await bench.nvml.scan()
    before = bench.nvml.beats
    for _ in range(1000):
        bench.hardware.changed()
        await trio.testing.wait_all_tasks_blocked()
    assert await bench.quiet() == []
    assert bench.nvml.beats >= before + 1000


async def test_an_event_whose_uuid_cannot_be_read_is_told_by_its_address(start) -> None:
    """HLT-14"""
    bench = await start("2xH100")
    bench.hardware.fail("nvmlDeviceGetUUID", 999, 1)
    found = await bench.nvml.scan()
    assert [f.index for f in found.failures] == [1]
    bench.hardware.xid(1, 79)
    (note,) = await bench.quiet()
    assert (note.gpu, note.pci, note.code) == (None, bench.hardware.gpus[1].pci, 79)


async def test_an_event_whose_device_cannot_be_told_at_all_blames_nobody(start) -> None:
    """HLT-14"""
    bench = await start("1xH100")
    bench.hardware.fail("nvmlDeviceGetUUID", 999)
    bench.hardware.fail("nvmlDeviceGetPciInfo_v3", 999)
    await bench.nvml.scan()
    bench.hardware.xid(0, 79)
    assert await bench.quiet() == [Xid(gpu=None, code=79)]


async def test_one_gpu_that_answers_an_unknown_error_leaves_the_others(start) -> None:
    """NVM-01"""
    bench = await start("8xH100")
    bench.hardware.fail("nvmlDeviceGetHandleByIndex_v2", 999, 0)
    found = await bench.nvml.scan()
    assert [gpu.index for gpu in found.gpus] == list(range(1, 8))
    assert [(f.index, f.kind) for f in found.failures] == [(0, FailureKind.ERROR)]


async def test_a_gpu_that_is_counted_and_not_found_is_a_partial_result(start) -> None:
    """NVM-08"""
    bench = await start("8xH100")
    bench.hardware.fail("nvmlDeviceGetHandleByIndex_v2", 6, 7, times=1)
    found = await bench.nvml.scan()
    assert len(found.gpus) == 7
    assert [(f.index, f.kind) for f in found.failures] == [(7, FailureKind.LOST)]
    assert len((await bench.nvml.scan()).gpus) == 8


async def test_an_older_library_without_recovery_action_and_driver_events_serves(start) -> None:
    """NVM-05"""
    bench = await start("1xH100")
    bench.hardware.missing |= {"nvmlDeviceGetFieldValues", "nvmlSystemEventSetCreate", "nvmlDeviceGetMigMode"}
    gpu = (await bench.nvml.scan()).gpus[0]
    assert (gpu.recovery, gpu.mig, gpu.monitored) == (None, MigMode.UNSUPPORTED, True)


async def test_a_part_without_a_memory_query_is_served(start) -> None:
    """UNI-01"""
    bench = await start("1xGB10")
    gpu = (await bench.nvml.scan()).gpus[0]
    assert gpu.memory is None
    assert not gpu.monitored


async def test_a_name_that_is_not_utf8_is_read_with_replacement(start) -> None:
    """LBL-06"""
    bench = await start("1xH100")
    bench.hardware.gpus[0].name = b"\xf8 \x99 GPU"
    assert (await bench.nvml.scan()).gpus[0].product == "� � GPU"


@pytest.mark.parametrize("text", ["-1", "", "4096", "18446744073709551615", "x", None])
async def test_numa_nodes_that_the_host_does_not_have_are_left_out(start, tmp_path: Path, text: str | None) -> None:
    """NUM-01, NUM-03"""
    bench = await start("1xH100")
    file = tmp_path / "sys/bus/pci/devices" / bench.hardware.gpus[0].pci / "numa_node"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    assert (await bench.nvml.scan()).gpus[0].numa is None


async def test_a_driver_that_is_absent_at_first_is_found_when_it_comes(start) -> None:
    """DRV-01"""
    bench = await start("2xH100")
    bench.hardware.set_driver(codes.ABSENT)
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert caught.value.state is DriverState.ABSENT
    bench.hardware.set_driver(codes.READY)
    found = await bench.nvml.scan()
    assert (len(found.gpus), found.generation) == (2, 1)


async def test_a_mismatch_of_library_and_module_is_told_apart(start) -> None:
    """DRV-03"""
    bench = await start("1xH100")
    bench.hardware.set_driver(codes.MISMATCH)
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert caught.value.state is DriverState.MISMATCH


@pytest.mark.parametrize(("code", "state"), [(4, DriverState.DENIED), (999, DriverState.FAILED)])
async def test_other_failures_of_nvml_say_nothing_about_the_gpus(start, code: int, state: DriverState) -> None:
    bench = await start("1xH100")
    bench.hardware.fail("nvmlInitWithFlags", code, times=1)
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert caught.value.state is state
    assert not state.definite
    assert len((await bench.nvml.scan()).gpus) == 1


async def test_gpus_are_served_unmonitored_where_there_are_no_events(start) -> None:
    """HLT-10"""
    bench = await start("2xH100")
    bench.hardware.fail("nvmlEventSetCreate", 3)
    assert [gpu.monitored for gpu in (await bench.nvml.scan()).gpus] == [False, False]
    bench.hardware.mend()
    assert [gpu.monitored for gpu in (await bench.nvml.scan()).gpus] == [True, True]


async def test_an_upgraded_driver_is_a_new_generation_and_is_watched_again(start) -> None:
    bench = await start("1xH100")
    await bench.nvml.scan()
    bench.hardware.set_driver(codes.UNLOADED)
    with pytest.raises(NvmlUnavailable):
        await bench.nvml.scan()
    bench.hardware.set_driver(codes.READY, version="590.1")
    found = await bench.nvml.scan()
    assert (found.driver.version, found.generation) == ("590.1", 2)
    bench.hardware.xid(0, 79)
    assert [note.code for note in await bench.quiet() if isinstance(note, Xid)] == [79]


async def test_indices_move_when_a_gpu_goes_and_it_comes_back_with_new_handles(start) -> None:
    bench = await start("3xH100")
    before = await bench.nvml.scan()
    bench.hardware.unplug(0)
    assert DriverEvent(bound=False) in await bench.quiet()
    without = await bench.nvml.scan()
    assert [(gpu.index, gpu.uuid) for gpu in without.gpus] == [(0, before.gpus[1].uuid), (1, before.gpus[2].uuid)]
    assert without.generation == before.generation
    bench.hardware.plug(0)
    again = await bench.nvml.scan()
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in before.gpus]
    bench.hardware.xid(0, 31)
    assert Xid(gpu=before.gpus[0].uuid, pci=before.gpus[0].pci, code=31) in await bench.quiet()


async def test_a_gpu_that_hangs_is_told_apart_after_the_deadline(start, autojump_clock) -> None:
    """HLT-22"""
    bench = await start("3xH100")
    before = await bench.nvml.scan()
    bench.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
    began = trio.current_time()
    found = await bench.nvml.scan()
    assert trio.current_time() - began == 5
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert [(f.kind, f.uuid) for f in found.failures] == [(FailureKind.HUNG, before.gpus[1].uuid)]
    assert [note.gpu_index for note in await bench.quiet() if isinstance(note, WorkerGone)] == [1]
    bench.hardware.mend()
    assert len((await bench.nvml.scan()).gpus) == 2
    await trio.sleep(31)
    assert len((await bench.nvml.scan()).gpus) == 3


async def test_an_initialisation_that_hangs_ends_after_its_deadline(start, autojump_clock) -> None:
    """NVM-02"""
    bench = await start("1xH100")
    bench.hardware.hang("nvmlInitWithFlags")
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert (caught.value.state, trio.current_time()) == (DriverState.HUNG, 120)
    bench.hardware.mend()
    assert len((await bench.nvml.scan()).gpus) == 1


async def test_a_slow_initialisation_is_waited_for(start, autojump_clock) -> None:
    bench = await start("1xH100")
    bench.hardware.hang("nvmlInitWithFlags", seconds=60)
    assert len((await bench.nvml.scan()).gpus) == 1
    assert trio.current_time() == 60


async def test_scans_asked_for_at_once_are_one_scan(start, autojump_clock) -> None:
    bench = await start("1xH100")
    bench.hardware.hang("nvmlInitWithFlags", seconds=1)
    found: list[object] = []

    async def scan() -> None:
        found.append(await bench.nvml.scan())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(scan)
    assert len(found) == 5
    assert all(one is found[0] for one in found)
    assert bench.hardware.inits == 1
