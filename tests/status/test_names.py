"""Whatever does not work has one name, in status, log and metrics."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from reactor import events as e
from reactor.model.condition import WHOLE_GPU, FaultClass, Placement
from reactor.model.config import Config, ConfigProblem, Flags, Imex, SharedResource, TimeSlicing
from reactor.model.gpu import Driver, DriverState, FailureKind, GpuFailure, Inventory, RecoveryAction
from reactor.model.ids import PciAddress
from reactor.model.kubelet import SocketIdentity
from reactor.record.recorder import Recorder
from reactor.state import State
from reactor.status.describe import describe
from reactor.status.http import Request
from reactor.status.metrics.collect import Sight
from reactor.status.metrics.metrics import answer_metrics
from reactor.status.metrics.tally import Tally
from tests.loglines import LogLines
from tests.reducer.world import GPU, A, B, World, gpu
from tests.status.metrics.world import Scrape, parse

ROOT = Path(__file__).parents[2]
DRIVER = Driver(version="570", cuda=(12, 8))
OVERSIZE = Config(time_slicing=TimeSlicing(resources=(SharedResource(name=GPU, replicas=100_000),)))


class Told(World):
    """``World`` whose facts are also logged and counted."""

    def __init__(self, log: LogLines) -> None:
        self.log = log
        self.recorder = Recorder(log, node="node-1", run="r")
        self.tally = Tally()
        super().__init__()

    def tell(self, fact: e.Fact, *, after: float = 0.0) -> State:
        before = self.state
        state = super().tell(fact, after=after)
        event = e.Event(seq=self.seq, cause=None, at=self.now, wall=self.now + 1e9, fact=fact)
        self.recorder.record(event, before, state)
        self.tally.record(event, before, state)
        return state

    def scrape(self) -> Scrape:
        sight = Sight(state=self.state, snapshot=self.snapshot, tally=self.tally, load={}, sources=(), lost={})
        return Scrape(parse(answer_metrics(lambda: sight)(Request(method="GET", path="/metrics")).body.decode()))

    def in_status(self) -> list[str]:
        return [fault["name"] for fault in describe(self.state, self.snapshot)["faults"]]

    def in_metrics(self) -> list[str]:
        return [labels["name"] for labels in self.scrape().labels("fault_info")]

    def in_log(self) -> list[str]:
        """Of the lines since the last call."""
        named = [name for line in self.log for name in line.get("faults", ())]
        self.log.lines.clear()
        return named


@pytest.fixture
def told(log: LogLines) -> Told:
    told = Told(log)
    told.in_log()
    return told


def inventory(*failures: GpuFailure) -> e.InventoryTaken:
    return e.InventoryTaken(inventory=Inventory(driver=DRIVER, gpus=(gpu(A, 0), gpu(B, 1)), failures=failures))


def read(config: Config, digest: str) -> e.ConfigRead:
    return e.ConfigRead(config=config, digest=digest)


STRANGER = GpuFailure(index=2, kind=FailureKind.ERROR, error="Unknown Error", pci=PciAddress("0000:09:00.0"))
REJECTED = e.ConfigRejected(
    digest="bad", path="c.yaml", problems=(ConfigProblem(line=1, column=1, path="x", message="bad"),)
)
FAULTS: Mapping[str, tuple[Sequence[e.Fact], Sequence[e.Fact]]] = {
    "agent.waiting": (
        [e.AgentWaiting(reason="another agent has this node")],
        [e.AgentStarted(version="1", run="r", boot="boot")],
    ),
    "checkpoint": (
        [e.CheckpointFailed(error="not JSON", missing=False)],
        [e.CheckpointRead(entries=(), asked_at=1.0)],
    ),
    "config.rejected": ([REJECTED], [read(Config(), "good")]),
    "driver": ([e.InventoryFailed(state=DriverState.FAILED, error="Unknown Error")], [inventory()]),
    "gpu.unreadable:0000:09:00.0": ([inventory(STRANGER)], [inventory()]),
    "handler.discover": (
        [e.HandlerFailed(handler="discover", lane="", error="x", attempt=1, retry_in=1.0)],
        [e.HandlerRecovered(handler="discover", lane="", attempts=1)],
    ),
    f"handler.register:{GPU}": (
        [e.HandlerFailed(handler="register", lane=GPU, error="x", attempt=1, retry_in=1.0)],
        [e.HandlerRecovered(handler="register", lane=GPU, attempts=1)],
    ),
    "imex.channel": ([read(Config(imex=Imex(channels=(0,))), "imex")], [read(Config(), "none")]),
    "kubelet.pins_cpus": (
        [e.KubeletUp(identity=SocketIdentity(2, 2), pins_cpus=True)],
        [read(Config(flags=Flags(pass_device_specs=True)), "specs")],
    ),
    f"plan.oversize:{GPU}": ([read(OVERSIZE, "large")], [read(Config(), "small")]),
    "podresources.list": ([e.PodsListFailed(error="x")], [e.PodsListed(pods=(), asked_at=1.0)]),
    f"registration.refused:{GPU}": (
        [e.PluginServing(resource=GPU, socket="s"), e.PluginRefused(resource=GPU, socket="s", error="x")],
        [e.PluginRegistered(resource=GPU, socket="s")],
    ),
    "source.kubelet": (
        [e.SourceFailed(source="kubelet", error="x", attempt=1, retry_in=1.0)],
        [e.SourceRecovered(source="kubelet", attempts=1)],
    ),
    "source.health": (
        [e.SourceFailed(source="health", error="GPUs are not watched", attempt=3, retry_in=1.0)],
        [e.SourceRecovered(source="health", attempts=3)],
    ),
    "state.unreadable": ([e.StateRestored(problem="not JSON")], []),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_agent_has_one_name_in_status_log_and_metrics(told: Told, name: str) -> None:
    """OBS-02: from its beginning to its end."""
    begin, end = FAULTS[name]
    for fact in begin:
        told.tell(fact)
    assert told.in_status() == told.in_metrics() == told.in_log() == [name]
    for fact in end:
        told.tell(fact)
    if end:
        assert told.in_status() == told.in_metrics() == []
        assert told.in_log() == [name], "the line that tells of its end"


def test_no_fault_is_left_out_above() -> None:
    """Each place of the reducer that begins one has a row, those of handlers and of sources have two."""
    places = [
        ast.unparse(call.args[2])
        for path in (ROOT / "reactor" / "reducer").glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and path.name != "faults.py"
        if ast.unparse(call.func).removeprefix("faults.") in ("begin", "stand")
    ]
    assert len(places) == len(FAULTS) - 2, f"add the new one to FAULTS: {places}"


def condemned(fact: e.Fact) -> Callable[[Told], object]:
    return lambda told: told.tell(fact)


def failed(kind: FailureKind) -> Callable[[Told], object]:
    failure = GpuFailure(index=0, kind=kind, error="it says so", uuid=A)
    return condemned(e.InventoryTaken(inventory=Inventory(driver=DRIVER, gpus=(gpu(B, 1),), failures=(failure,))))


CONDITIONS: Mapping[tuple[FaultClass, str, str], Callable[[Told], object]] = {
    (FaultClass.RESET, "xid", "95"): condemned(e.XidReported(gpu=A, placement=WHOLE_GPU, xid=95)),
    (FaultClass.RESTART, "xid", "79"): condemned(e.XidReported(gpu=A, placement=Placement(gi=1, ci=0), xid=79)),
    (FaultClass.HARDWARE, "xid", "other"): condemned(e.XidReported(gpu=A, placement=WHOLE_GPU, xid=54)),
    (FaultClass.UNKNOWN, "xid", "other"): condemned(e.XidReported(gpu=A, placement=WHOLE_GPU, xid=99_999)),
    (FaultClass.RESET, "ecc", ""): condemned(e.EccReported(gpu=A, placement=WHOLE_GPU)),
    (FaultClass.RESET, "reset_required", ""): condemned(e.RecoveryActionChanged(gpu=A, action=RecoveryAction.RESET)),
    (FaultClass.UNREACHABLE, "lost", ""): condemned(e.GpuLost(gpu=A, error="gone")),
    (FaultClass.UNREACHABLE, "hung", ""): failed(FailureKind.HUNG),
    (FaultClass.UNREACHABLE, "error", ""): failed(FailureKind.ERROR),
}


@pytest.mark.parametrize(("fault", "reason", "xid"), CONDITIONS)
def test_a_fault_of_a_gpu_has_one_name_in_status_log_and_metrics(
    told: Told, fault: FaultClass, reason: str, xid: str
) -> None:
    """OBS-02"""
    CONDITIONS[fault, reason, xid](told)
    (shown,) = next(one["conditions"] for one in describe(told.state, told.snapshot)["gpus"] if one["uuid"] == A)
    (line,) = told.log.of("gpu.lost" if reason == "lost" else "gpu.condemned")
    (labels,) = told.scrape().labels("gpu_fault_info")
    assert (shown["fault"], shown["reason"]) == (line["fault"], line["reason"]) == (fault, reason)
    assert (labels["fault"], labels["reason"], labels["xid"]) == (fault, reason, xid)
    assert shown["xid"] == line.get("xid")
    told.log.lines.clear()
    told.tell(e.FaultCleared(gpu=A, reason="mended"))
    (line,) = told.log.of("gpu.recovered")
    assert line["gpu"] == A
    assert told.scrape().labels("gpu_fault_info") == []
