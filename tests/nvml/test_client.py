"""The real worker process, over simulated hardware that this process keeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from reactor.model.gpu import DriverState, FailureKind
from reactor.nvml import NvmlClient, NvmlUnavailable
from reactor.nvml.notes import DriverEvent, Note, WatchFailed, WatchRecovered, WatchRestarted, WorkerGone, WorkerUp, Xid
from reactor.simulate.nvml import codes
from reactor.simulate.nvml.faults import Hang
from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware
from reactor.simulate.nvml.host import Host


class Bench:
    def __init__(self, root: Path, spec: str = "4xH100", **options: object) -> None:
        self.hardware = Hardware(spec)
        lay_out(self.hardware, root)
        self.host = Host(self.hardware, root / "gpus.sock")
        self.root = root
        self.nvml = self.client(**options)
        self.pid = 0

    def client(self, **options: object) -> NvmlClient:
        options = {"scan_deadline": 0.5, "wait": 0.05} | options
        return NvmlClient(provider=self.host.provider, dev_root=self.root, sys_root=self.root / "sys", **options)

    async def note(self, *kinds: type[Note]) -> Note:
        """The next note of these kinds."""
        with trio.fail_after(10):
            while True:
                note = await self.nvml.notes.receive()
                if isinstance(note, WorkerUp):
                    self.pid = note.pid
                if isinstance(note, kinds):
                    return note


async def met(hang: Hang) -> None:
    """Until a call ran into it."""
    with trio.fail_after(10):
        while not hang.met:
            await trio.lowlevel.checkpoint()


@pytest.fixture
async def bench(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    await nursery.start(bench.host.run)
    await nursery.start(bench.nvml.run)
    return bench


async def test_a_scan_and_an_xid_come_through_the_worker(bench: Bench) -> None:
    found = await bench.nvml.scan()
    assert [gpu.uuid for gpu in found.gpus] == [gpu.uuid for gpu in bench.hardware.gpus]
    assert {gpu.numa for gpu in found.gpus} == {0, 1}
    assert found.nodes >= {"/dev/nvidiactl", "/dev/nvidia3"}
    assert found.took is not None
    assert found.opened is not None, "the first one has NVML initialised"
    bench.hardware.xid(2, 94, gi=1, ci=0)
    assert await bench.note(Xid) == Xid(gpu=found.gpus[2].uuid, pci=found.gpus[2].pci, gi=1, ci=0, code=94)
    assert bench.hardware.inits == 1


async def test_scans_asked_for_at_once_are_one(bench: Bench) -> None:
    found: list[object] = []

    async def scan() -> None:
        found.append(await bench.nvml.scan())

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(scan)
    assert all(one is found[0] for one in found)


async def test_a_scan_survives_the_caller_that_asked_first(bench: Bench) -> None:
    bench.hardware.hang("nvmlInitWithFlags", seconds=0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.nvml.scan)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len((await bench.nvml.scan()).gpus) == 4
    assert bench.hardware.inits == 1


async def test_a_worker_that_is_killed_is_replaced_and_nothing_else_moves(bench: Bench) -> None:
    before = await bench.nvml.scan()
    await bench.note(WorkerUp)
    os.kill(bench.pid, signal.SIGKILL)
    gone = await bench.note(WorkerGone)
    assert (gone.hung, gone.gpu_index) == (False, None)
    assert gone.error == f"NVML worker {bench.pid} ended with status -9"
    await bench.note(WorkerUp)
    after = await bench.nvml.scan()
    assert after == before, "however long they took"
    assert after.opened is not None
    assert (await bench.nvml.scan()).opened is None
    bench.hardware.xid(0, 79)
    assert (await bench.note(Xid)).code == 79


async def test_a_worker_that_dies_in_a_scan_costs_a_try(bench: Bench) -> None:
    await bench.note(WorkerUp)
    hang = bench.hardware.hang("nvmlDeviceGetName", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.nvml.scan)
        await met(hang)
        bench.hardware.mend()
        os.kill(bench.pid, signal.SIGKILL)
        assert len((await bench.nvml.scan()).gpus) == 4


async def test_a_call_that_hangs_marks_its_gpu_and_the_others_go_on(bench: Bench) -> None:
    """HLT-22"""
    before = await bench.nvml.scan()
    bench.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
    found = await bench.nvml.scan()
    assert [gpu.index for gpu in found.gpus] == [0, 2, 3]
    assert [(f.index, f.kind, f.uuid) for f in found.failures] == [(1, FailureKind.HUNG, before.gpus[1].uuid)]
    gone = await bench.note(WorkerGone)
    assert (gone.hung, gone.gpu_index) == (True, 1)
    bench.hardware.xid(3, 79)
    assert (await bench.note(Xid)).gpu == before.gpus[3].uuid


async def test_xids_of_other_gpus_come_while_a_call_hangs(bench: Bench) -> None:
    """HLT-22"""
    before = await bench.nvml.scan()
    hang = bench.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.nvml.scan)
        await met(hang)
        bench.hardware.xid(3, 79)
        assert (await bench.note(Xid)).gpu == before.gpus[3].uuid
        nursery.cancel_scope.cancel()


async def test_an_initialisation_that_hangs_is_given_up_and_tried_anew(nursery: trio.Nursery, tmp_path: Path) -> None:
    """NVM-02"""
    bench = Bench(tmp_path, init_deadline=1)
    await nursery.start(bench.host.run)
    await nursery.start(bench.nvml.run)
    bench.hardware.hang("nvmlInitWithFlags")
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert caught.value.state is DriverState.HUNG
    bench.hardware.mend()
    assert len((await bench.nvml.scan()).gpus) == 4


class Holding:
    """Ends workers as a kernel would that does not let them go: they are stopped, so that not even their guard acts."""

    def __init__(self) -> None:
        self.stuck: list[trio.Process] = []
        self.on = True

    def kill(self, process: trio.Process) -> None:
        if not self.on:
            process.kill()
            return
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        self.stuck.append(process)

    async def free(self, n: int) -> None:
        self.stuck[n].kill()
        await self.stuck[n].wait()


@pytest.fixture
async def holding(nursery: trio.Nursery) -> AsyncIterator[Holding]:
    holding = Holding()
    yield holding
    holding.on = False
    for process in holding.stuck:
        process.kill()


async def test_workers_that_cannot_be_killed_are_left_behind_twice_and_no_more(
    nursery: trio.Nursery, tmp_path: Path, holding: Holding
) -> None:
    bench = Bench(tmp_path, kill=holding.kill)
    await nursery.start(bench.host.run)
    await nursery.start(bench.nvml.run)
    await bench.nvml.scan()
    bench.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
    bench.hardware.hang("nvmlDeviceGetMemoryInfo", 2)
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert caught.value.state is DriverState.HUNG
    assert bench.nvml.left_behind == 2
    bench.hardware.mend()
    with pytest.raises(NvmlUnavailable):
        await bench.nvml.scan()
    await holding.free(0)
    found = await bench.nvml.scan()
    assert [f.index for f in found.failures] == [1, 2]
    await holding.free(1)
    holding.on = False


async def test_a_driver_that_comes_late_is_found_without_a_new_worker(bench: Bench) -> None:
    """DRV-01"""
    bench.hardware.set_driver(codes.ABSENT)
    for _ in range(3):
        with pytest.raises(NvmlUnavailable) as caught:
            await bench.nvml.scan()
        assert caught.value.state is DriverState.ABSENT
    bench.hardware.set_driver(codes.READY)
    found = await bench.nvml.scan()
    assert (len(found.gpus), found.generation) == (4, 1)
    await bench.note(WorkerUp)
    pid = bench.pid
    os.kill(pid, 0)


async def test_an_upgrade_under_a_running_worker_ends_in_a_new_generation(bench: Bench) -> None:
    await bench.nvml.scan()
    bench.hardware.set_driver(codes.UNLOADED)
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert caught.value.state is DriverState.ABSENT
    bench.hardware.set_driver(codes.READY, "590.1")
    found = await bench.nvml.scan()
    assert (found.driver.version, found.generation) == ("590.1", 2)


async def test_a_library_that_never_matches_is_a_mismatch(bench: Bench) -> None:
    """DRV-03"""
    bench.hardware.set_driver(codes.MISMATCH)
    with pytest.raises(NvmlUnavailable) as caught:
        await bench.nvml.scan()
    assert caught.value.state is DriverState.MISMATCH


async def test_gpus_that_come_and_go_are_seen_by_a_fresh_worker(bench: Bench) -> None:
    """HLT-21"""
    before = await bench.nvml.scan()
    bench.hardware.unplug(0)
    assert await bench.note(DriverEvent) == DriverEvent(bound=False)
    without = await bench.nvml.scan()
    assert [gpu.uuid for gpu in without.gpus] == [gpu.uuid for gpu in before.gpus[1:]]
    bench.hardware.plug(0)
    assert await bench.nvml.scan() == before


async def test_no_event_is_missed_while_a_worker_is_replaced_for_gpus_that_moved(bench: Bench) -> None:
    """HLT-16: a GPU that falls off the bus often takes others along in the same moment."""
    await bench.nvml.scan()
    await bench.note(WorkerUp)
    before = bench.pid
    bench.hardware.unplug(3)
    hang = bench.hardware.hang("nvmlInitWithFlags")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.nvml.scan)
        await met(hang)
        bench.hardware.xid(0, 79)
        assert (await bench.note(Xid)).code == 79
        hang.release()
    assert bench.pid != before, "the successor was up already"
    bench.hardware.xid(1, 48)
    assert (await bench.note(Xid)).code == 48
    assert [gpu.index for gpu in (await bench.nvml.scan()).gpus] == [0, 1, 2]
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


async def test_a_wait_that_fails_restarts_the_watch_in_the_worker(bench: Bench) -> None:
    """HLT-12"""
    await bench.nvml.scan()
    bench.hardware.fail("nvmlEventSetWait_v2", 999, None, 3)
    await bench.note(WatchRestarted)
    await bench.note(WatchFailed)
    await bench.note(WatchRecovered)
    bench.hardware.xid(1, 79)
    assert (await bench.note(Xid)).code == 79


async def test_a_wait_that_never_returns_is_noticed_by_its_silence(nursery: trio.Nursery, tmp_path: Path) -> None:
    bench = Bench(tmp_path, silence=0.5)
    await nursery.start(bench.host.run)
    await nursery.start(bench.nvml.run)
    await bench.nvml.scan()
    bench.hardware.hang("nvmlEventSetWait_v2")
    gone = await bench.note(WorkerGone)
    assert gone.hung
    assert "no sign of life" in gone.error
    bench.hardware.mend()
    assert len((await bench.nvml.scan()).gpus) == 4


async def test_a_worker_ends_at_once_while_it_waits(bench: Bench) -> None:
    """NVM-06"""
    patient = bench.client(wait=60)
    async with trio.open_nursery() as nursery:
        await nursery.start(patient.run)
        await patient.scan()
        bench.hardware.xid(0, 79)
        while not isinstance(await patient.notes.receive(), Xid):
            pass  # the next wait begins now
        with trio.fail_after(1):
            await patient.renew("another library")
        nursery.cancel_scope.cancel()


async def test_events_are_heard_while_the_first_scan_hangs(bench: Bench) -> None:
    """HLT-16, HLT-22"""
    hang = bench.hardware.hang("nvmlDeviceGetName", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.nvml.scan)
        await met(hang)
        bench.hardware.xid(3, 79)
        assert (await bench.note(Xid)).gpu == bench.hardware.gpus[3].uuid
        nursery.cancel_scope.cancel()


async def test_renewing_lets_go_of_the_worker_and_is_no_fault(bench: Bench) -> None:
    await bench.nvml.scan()
    await bench.note(WorkerUp)
    old = bench.pid
    await bench.nvml.renew("driver unbinds")
    with pytest.raises(ProcessLookupError):
        os.kill(old, 0)
    assert isinstance(await bench.note(WorkerUp, WorkerGone), WorkerUp)
    assert (await bench.nvml.scan()).generation == 1


async def test_nothing_is_left_open_by_workers_that_came_and_went(bench: Bench) -> None:
    counts = []
    for _ in range(5):
        await bench.nvml.renew("again")
        await bench.nvml.scan()
        bench.hardware.xid(0, 79)
        await bench.note(Xid)  # the watch of this worker is connected to the hardware, too
        counts.append(len(os.listdir("/proc/self/fd")))
    assert len(set(counts)) == 1


async def test_the_worker_inherits_nothing_but_its_socket(bench: Bench) -> None:
    await bench.nvml.scan()
    await bench.note(WorkerUp)
    kept = os.open("/proc/self/status", os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        await bench.nvml.renew("while an inheritable descriptor is open")
        await bench.nvml.scan()
        await bench.note(WorkerUp)
        held = [os.readlink(f"/proc/{bench.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{bench.pid}/fd") if int(fd) > 2]
    finally:
        os.close(kept)
    # its own end of the pair, the two of its bell, and the simulated hardware for each of the threads that asked it
    assert {what.split(":")[0] for what in held} == {"socket"}
    assert len(held) <= 5


async def gone(pid: int) -> None:
    """Until that process, no child of ours, has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    await trio.lowlevel.wait_readable(descriptor)
    os.close(descriptor)


_AGENT = """
import sys, trio
from pathlib import Path
from reactor.nvml import NvmlClient

async def main():
    nvml = NvmlClient(provider=sys.argv[1], scan_deadline=60)
    async with trio.open_nursery() as nursery:
        await nursery.start(nvml.run)
        nursery.start_soon(nvml.scan)
        print((await nvml.notes.receive()).pid, flush=True)
        with trio.open_signal_receiver(15) as signals:
            async for _ in signals:
                nursery.cancel_scope.cancel()
                break

trio.run(main)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_agent_and_worker_end_in_time_while_a_call_hangs(
    nursery: trio.Nursery, tmp_path: Path, how: signal.Signals
) -> None:
    """HLT-22"""
    bench = Bench(tmp_path)
    await nursery.start(bench.host.run)
    hang = bench.hardware.hang("nvmlDeviceGetUUID", 0)
    agent = await trio.lowlevel.open_process(
        [sys.executable, "-c", _AGENT, bench.host.provider], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert agent.stdout is not None
    with trio.fail_after(10):
        worker = int(await agent.stdout.receive_some())
        await met(hang)
        began = time.monotonic()
        agent.send_signal(how)
        await agent.wait()
        await gone(worker)
    assert time.monotonic() - began < 1
    await agent.stdout.aclose()
    nursery.cancel_scope.cancel()
