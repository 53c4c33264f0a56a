"""The log of a small life, with the real reducer: what a person reads, and that causes can be followed."""

from __future__ import annotations

import pytest

from reactor import events as facts
from reactor.events import Event, Fact
from reactor.model.condition import WHOLE_GPU
from reactor.model.config import Config, SharedResource, TimeSlicing
from reactor.model.gpu import Driver, FailureKind, GpuFailure, Inventory
from reactor.record.recorder import Recorder
from reactor.reducer import reduce
from reactor.state import State
from tests.loglines import LogLines
from tests.record.world import GPU, WALL, gpu, uuid

SHARED = Config(time_slicing=TimeSlicing(resources=(SharedResource(name=GPU, replicas=4),)))
DRIVER = Driver(version="580.1", cuda=(13, 0))


class Life:
    """Facts through the reducer into the log, as the bus does it."""

    def __init__(self, log: LogLines) -> None:
        self.recorder = Recorder(log, node="node-1", run="r1")
        self.state = State()
        self.seq = 0

    def tell(self, fact: Fact, cause: int | None = None) -> int:
        self.seq += 1
        event = Event(seq=self.seq, cause=cause, at=float(self.seq), wall=WALL + self.seq, fact=fact)
        before, self.state = self.state, reduce(self.state, event)
        self.recorder.record(event, before, self.state)
        return self.seq


@pytest.fixture
def life(log: LogLines) -> Life:
    life = Life(log)
    started = life.tell(facts.AgentStarted(version="1", run="r1", boot="b"))
    life.tell(facts.StateRestored(), started)
    life.tell(facts.ConfigRead(config=SHARED, digest="d1", path="/c.yaml"))
    life.tell(facts.InventoryTaken(inventory=Inventory(driver=DRIVER, gpus=(gpu(0), gpu(1)), generation=1)))
    return life


def test_a_start_is_told_in_the_order_in_which_it_happens(life: Life, log: LogLines) -> None:
    assert log.events == [
        "agent.started",
        "state.restored",
        "config.read",
        "config.applied",
        "driver.found",
        "inventory.taken",
        "gpu.added",
        "gpu.added",
        "plan.made",
    ]
    assert log.lines[1]["cause"] == log.lines[0]["seq"]


def test_an_xid_is_judged_by_the_reducer_and_told_with_its_class(life: Life, log: LogLines) -> None:
    """OBS-01"""
    log.lines.clear()
    life.tell(facts.XidReported(gpu=uuid(0), placement=WHOLE_GPU, xid=79))
    life.tell(facts.XidReported(gpu=uuid(0), placement=WHOLE_GPU, xid=79))
    life.tell(facts.XidReported(gpu=uuid(1), placement=WHOLE_GPU, xid=13))
    assert [(line["class"], line["decision"], line["devices_affected"]) for line in log.of("xid.reported")] == [
        ("restart", "condemned", 4),
        ("restart", "counted", 4),
        ("application", "recorded", 0),
    ]
    assert [line["gpu"] for line in log.of("gpu.condemned")] == [uuid(0)]


def test_a_gpu_that_does_not_answer_and_comes_back_is_told_twice(life: Life, log: LogLines) -> None:
    log.lines.clear()
    lost = GpuFailure(index=1, kind=FailureKind.LOST, error="GPU is lost", uuid=uuid(1), pci=gpu(1).pci)
    inventory = Inventory(driver=DRIVER, gpus=(gpu(0),), failures=(lost,), generation=1)
    for _ in range(20):
        life.tell(facts.InventoryTaken(inventory=inventory))
    assert log.events == ["gpu.lost"]
    whole = Inventory(driver=DRIVER, gpus=(gpu(0), gpu(1)), generation=1)
    for _ in range(20):
        life.tell(facts.InventoryTaken(inventory=whole))
    assert log.events == ["gpu.lost", "gpu.recovered"]
    assert log.lines[-1]["remaining"] == 0


def test_a_fault_of_the_kubelets_books_is_told_once(life: Life, log: LogLines) -> None:
    log.lines.clear()
    for _ in range(5):
        life.tell(facts.PodsListFailed(error="down"))
        life.tell(facts.CheckpointFailed(error="no such file", missing=True))
    life.tell(facts.PodsListed(pods=(), asked_at=0.0))
    assert log.events == ["podresources.failed", "checkpoint.failed", "podresources.answered"]


def test_a_handler_that_fails_is_told_by_its_lane_with_how_long(life: Life, log: LogLines) -> None:
    log.lines.clear()
    for attempt in range(1, 10):
        life.tell(facts.HandlerFailed(handler="register", lane=GPU, error="no", attempt=attempt, retry_in=1.0))
    life.tell(facts.HandlerRecovered(handler="register", lane=GPU, attempts=9))
    assert log.events == ["handler.failed"] * 4 + ["handler.recovered"]
    assert log.lines[-1]["seconds"] == 9.0
