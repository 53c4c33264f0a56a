"""What scans and events make of the GPUs: one's trouble is never another's."""

from __future__ import annotations

from collections.abc import Iterable

from reactor import events as e
from reactor.model.condition import WHOLE_GPU, FaultClass
from reactor.model.config import Config, Flags
from reactor.model.gpu import Driver, DriverState, FailureKind, Gpu, GpuFailure, Inventory, RecoveryAction
from reactor.model.ids import DeviceId, GpuUuid, PciAddress
from reactor.reducer import reduce
from reactor.state import State
from tests.reducer.world import GPU, WHOLE_A, WHOLE_B, A, B, World, gpu, share

C = GpuUuid("GPU-cccccccc-0000-0000-0000-000000000000")


def scan(
    world: World,
    *gpus: Gpu,
    failures: tuple[GpuFailure, ...] = (),
    generation: int = 0,
    nodes: Iterable[str] = (),
) -> None:
    inventory = Inventory(
        driver=Driver(version="570", cuda=(12, 8)),
        gpus=gpus,
        failures=failures,
        generation=generation,
        nodes=frozenset(nodes),
    )
    world.tell(e.InventoryTaken(inventory=inventory))


def xid(world: World, code: int, *, on: object = A) -> None:
    world.tell(e.XidReported(gpu=on, placement=WHOLE_GPU, xid=code))  # type: ignore[arg-type]


def test_an_xid_marks_every_share_of_its_gpu_and_no_other() -> None:
    world = World(replicas=2)
    xid(world, 79)
    assert world.listed() == {share(A, 0): False, share(A, 1): False, share(B, 0): True, share(B, 1): True}


def test_an_xid_of_a_gpu_that_no_scan_has_shown_yet_is_kept_for_its_first() -> None:
    """HLT-16: it was plugged in, and the watch is quicker than the scan. One scan may still be without it."""
    world = World()
    before = world.listed()
    xid(world, 79, on=C)
    assert world.listed() == before
    scan(world, gpu(A, 0), gpu(B, 1))
    scan(world, gpu(A, 0), gpu(B, 1), gpu(C, 2))
    assert world.listed() == before | {DeviceId(C): False}


def test_what_is_told_of_a_gpu_that_never_comes_is_forgotten() -> None:
    world = World()
    xid(world, 79, on=C)
    world.now += 300
    scan(world, gpu(A, 0), gpu(B, 1))
    assert C in world.state.conditions
    world.now += 301
    scan(world, gpu(A, 0), gpu(B, 1))
    assert C not in world.state.conditions


def test_an_xid_before_the_first_scan_is_kept_for_it() -> None:
    """The watch of a new worker begins before its scan has answered."""
    inventory = Inventory(driver=Driver(version="570", cuda=(12, 8)), gpus=(gpu(A, 0), gpu(B, 1)), failures=())
    state = State()
    for seq, fact in enumerate(
        (
            e.AgentStarted(version="1", run="r", boot="boot"),
            e.XidReported(gpu=A, placement=WHOLE_GPU, xid=79),
            e.InventoryTaken(inventory=inventory),
        )
    ):
        state = reduce(state, e.Event(seq=seq, cause=None, at=100.0 + seq, wall=1e9 + seq, fact=fact))
    assert [condition.xid for condition in state.conditions[A]] == [79]
    assert not state.conditions.get(B)


def test_a_failure_is_matched_by_its_old_index_if_nothing_else_is_readable() -> None:
    world = World()
    scan(world, gpu(B, 1), failures=(GpuFailure(index=0, kind=FailureKind.LOST, error="GPU is lost"),))
    assert world.listed() == {WHOLE_A: False, WHOLE_B: True}


def test_a_failure_is_matched_by_its_address_before_its_index() -> None:
    """Indices move when a GPU goes."""
    world = World()
    failure = GpuFailure(index=0, kind=FailureKind.HUNG, error="no answer", pci=gpu(B, 1).pci)
    scan(world, gpu(A, 0), failures=(failure,))
    assert world.listed() == {WHOLE_A: True, WHOLE_B: False}


def test_a_gpu_that_never_answered_is_a_fault_and_not_a_gpu() -> None:
    """NVM-01"""
    world = World()
    failure = GpuFailure(index=2, kind=FailureKind.ERROR, error="unknown error", pci=PciAddress("0000:99:00.0"))
    scan(world, gpu(A, 0), gpu(B, 1), failures=(failure,))
    assert set(world.state.faults) == {"gpu.unreadable:0000:99:00.0"}
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}
    scan(world, gpu(A, 0), gpu(B, 1))
    assert not world.state.faults


def test_a_gpu_that_answers_again_is_healthy_after_a_quiet_time() -> None:
    world = World()
    scan(world, gpu(B, 1), failures=(GpuFailure(index=0, kind=FailureKind.LOST, error="GPU is lost"),))
    scan(world, gpu(A, 0), gpu(B, 1))
    assert not world.listed()[WHOLE_A]
    world.deadline("quiet")
    scan(world, gpu(A, 0), gpu(B, 1))
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}


def test_a_scan_that_failed_as_a_whole_condemns_nobody() -> None:
    world = World()
    for state in (DriverState.HUNG, DriverState.FAILED, DriverState.DENIED):
        world.tell(e.InventoryFailed(state=state, error="no answer"))
        assert world.listed() == {WHOLE_A: True, WHOLE_B: True}
        assert "driver" in world.state.faults


def test_a_driver_that_is_gone_withdraws_all_and_brings_all_back() -> None:
    world = World()
    world.tell(e.InventoryFailed(state=DriverState.ABSENT, error="driver not loaded"))
    assert world.listed() == {WHOLE_A: False, WHOLE_B: False}
    scan(world, gpu(A, 0), gpu(B, 1), generation=1)
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}


def test_a_reset_condition_is_lifted_by_a_rebound_driver_and_not_by_time() -> None:
    world = World()
    xid(world, 48)
    world.now += 86400
    scan(world, gpu(A, 0), gpu(B, 1))
    assert not world.listed()[WHOLE_A]
    scan(world, gpu(A, 0), gpu(B, 1), generation=1)
    assert world.listed()[WHOLE_A]


def test_what_the_driver_asks_for_is_believed_at_once_and_its_end_only_with_a_scan() -> None:
    """HLT-18"""
    world = World()
    world.tell(e.RecoveryActionChanged(gpu=A, action=RecoveryAction.RESET))
    assert not world.listed()[WHOLE_A]
    world.tell(e.RecoveryActionChanged(gpu=A, action=RecoveryAction.NONE))
    assert not world.listed()[WHOLE_A]
    scan(world, gpu(A, 0, recovery=RecoveryAction.NONE), gpu(B, 1, recovery=RecoveryAction.NONE))
    assert world.listed()[WHOLE_A]


def test_too_many_faults_in_a_day_need_a_person() -> None:
    world = World()
    for _ in range(4):
        scan(world, gpu(B, 1), failures=(GpuFailure(index=0, kind=FailureKind.LOST, error="GPU is lost"),))
        world.now += 10
        scan(world, gpu(A, 0), gpu(B, 1))
    assert not world.listed()[WHOLE_A]
    assert world.state.conditions[A][0].needs_person
    world.tell(e.FaultCleared(gpu=A, reason="card reseated"))
    assert world.listed()[WHOLE_A]
    assert not world.state.relapses


def test_another_gpu_at_the_address_of_a_broken_one_is_healthy() -> None:
    world = World()
    xid(world, 54)
    assert world.state.conditions[A][0].fault is FaultClass.HARDWARE
    new = gpu(GpuUuid("GPU-dddddddd-0000-0000-0000-000000000000"), 0)
    scan(world, new, gpu(B, 1))
    assert A not in world.state.conditions
    assert world.listed() == {WHOLE_A: False, new.uuid: True, WHOLE_B: True}


def test_scans_come_soon_while_a_gpu_is_missing_and_then_no_more() -> None:
    world = World()
    assert world.state.deadlines["resync"] == world.now + 30.0
    scan(world, gpu(A, 0))
    assert world.state.deadlines["resync"] == world.now + 2.0
    world.now += 601
    scan(world, gpu(A, 0))
    assert world.state.deadlines["resync"] == world.now + 30.0


def test_a_gpu_is_healthy_when_the_nodes_that_a_pod_is_given_are_there() -> None:
    """DRV-07, DRV-08: with passDeviceSpecs, NVML may answer before udev has made /dev/nvidia*."""
    nodes = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1"}
    world = World()
    passing = Config(flags=Flags(pass_device_specs=True))
    world.tell(e.ConfigRead(config=passing, digest="specs"))
    for missing in sorted(nodes - {"/dev/nvidia-uvm", "/dev/nvidia0"}):
        scan(world, gpu(A, 0), gpu(B, 1), nodes=nodes - {missing})
        assert world.listed() == {WHOLE_A: missing == "/dev/nvidia1", WHOLE_B: False}
        reasons = {listed.reason for listed in world.snapshot.offers[GPU].devices()}
        assert f"{missing} is missing on this node" in reasons
    scan(world, gpu(A, 0), gpu(B, 1), nodes=nodes)
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}
