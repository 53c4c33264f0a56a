"""What each fact is worth in lines."""

from __future__ import annotations

import msgspec
import pytest

from reactor import events as facts
from reactor.config import Accepted, parse
from reactor.events import Fact
from reactor.model.condition import WHOLE_GPU, FaultClass, Placement
from reactor.model.config import (
    Config,
    ConfigProblem,
    Flags,
    ListedDevices,
    MigStrategy,
    Setting,
    SharedResource,
    Source,
    TimeSlicing,
)
from reactor.model.gpu import Driver, DriverState, RecoveryAction
from reactor.model.hold import CheckpointEntry, PodDevices, PodRef
from reactor.model.ids import DeviceId, ResourceName
from reactor.model.kubelet import SocketIdentity, StreamId
from reactor.model.value import replace
from reactor.plan import Oversize
from reactor.state import Books, ConfigState, DriverStatus, Fault, Kubelet, Plugin, State
from tests.loglines import LogLines
from tests.record.world import GPU, WALL, Teller, condition, gpu, hold, node, uuid

LIFE = SocketIdentity(7, 1)
NEXT_LIFE = SocketIdentity(7, 2)


def xid(code: int = 79, index: int = 0, *, synthetic: bool = False) -> facts.XidReported:
    return facts.XidReported(gpu=uuid(index), placement=WHOLE_GPU, xid=code, synthetic=synthetic)


# ---------------------------------------------------------------- XIDs and conditions


def test_an_xid_that_condemns_is_one_line_with_its_evidence_and_its_consequence(teller: Teller, log: LogLines) -> None:
    """OBS-01"""
    teller.state = node(2, replicas=4)
    teller.tell(xid(), replace(teller.state, conditions={uuid(0): (condition(),)}))
    (told,) = log.of("xid.reported")
    assert told | {"v": 0, "ts": 0, "msg": 0} == {
        "v": 0,
        "ts": 0,
        "level": "info",
        "event": "xid.reported",
        "seq": 1,
        "run": "r1",
        "node": "node-1",
        "gpu": uuid(0),
        "pci": "0000:10:00.0",
        "index": 0,
        "xid": 79,
        "class": told["class"],
        "decision": "condemned",
        "devices_affected": 4,
        "msg": 0,
    }
    (condemned,) = log.of("gpu.condemned")
    assert (condemned["gpu"], condemned["fault"], condemned["xid"], condemned["level"]) == (
        uuid(0),
        "reset",
        79,
        "error",
    )


def test_an_xid_that_changes_nothing_is_recorded_only(teller: Teller, log: LogLines) -> None:
    teller.tell(xid(13))
    assert log.events == ["xid.reported"]
    assert (log.lines[0]["decision"], log.lines[0]["devices_affected"]) == ("recorded", 0)


def test_an_xid_on_a_gpu_that_is_unhealthy_for_it_is_counted(teller: Teller, log: LogLines) -> None:
    once = condition()
    teller.state = replace(node(), conditions={uuid(0): (once,)})
    teller.tell(xid(), replace(teller.state, conditions={uuid(0): (replace(once, count=2),)}))
    assert [line["decision"] for line in log] == ["counted"]


def test_the_placement_of_a_fault_is_told(teller: Teller, log: LogLines) -> None:
    teller.tell(facts.XidReported(gpu=uuid(0), placement=Placement(1, 0), xid=94))
    assert (log.lines[0]["gi"], log.lines[0]["ci"]) == (1, 0)


def test_what_a_person_injected_is_marked_on_every_line(teller: Teller, log: LogLines) -> None:
    """HLT-29"""
    injected = replace(condition(), synthetic=True)
    teller.tell(xid(synthetic=True), replace(teller.state, conditions={uuid(0): (injected,)}))
    assert [line.get("synthetic") for line in log] == [True, True]


def test_a_lost_gpu_is_told_as_lost_and_its_return_with_how_long(teller: Teller, log: LogLines) -> None:
    lost = condition(None, fault=FaultClass.UNREACHABLE, reason="lost")
    healthy = teller.state
    teller.tell(facts.GpuLost(gpu=uuid(0), error="gone"), replace(healthy, conditions={uuid(0): (lost,)}))
    teller.tell(facts.DeadlinePassed(name="quiet"), healthy, later=30.0)
    assert log.events == ["gpu.lost", "deadline.passed", "gpu.recovered"]
    assert (log.lines[-1]["seconds"], log.lines[-1]["remaining"], log.lines[-1]["reasons"]) == (130.0, 0, ["lost"])


def test_a_gpu_with_a_reason_left_is_not_called_healthy(teller: Teller, log: LogLines) -> None:
    both = (condition(79), condition(None, fault=FaultClass.UNREACHABLE, reason="error"))
    teller.state = replace(node(), conditions={uuid(0): both})
    teller.tell(facts.DeadlinePassed(name="quiet"), replace(teller.state, conditions={uuid(0): both[:1]}))
    assert log.lines[-1]["remaining"] == 1
    assert "healthy" not in str(log.lines[-1]["msg"])


def test_the_relapse_that_needs_a_person_is_told(teller: Teller, log: LogLines) -> None:
    once = condition()
    teller.state = replace(node(), conditions={uuid(0): (once,)})
    worse = replace(once, needs_person=True)
    teller.tell(xid(), replace(teller.state, conditions={uuid(0): (worse,)}))
    assert log.of("gpu.condemned")[0]["needs_person"] is True


def test_a_gpu_that_is_gone_is_told_with_the_address_it_had(teller: Teller, log: LogLines) -> None:
    away = replace(State(run="r1"), conditions={uuid(5): (condition(),)}, pci={uuid(5): gpu(5).pci})
    teller.state = replace(away, conditions={})
    teller.tell(xid(79, 5), away)
    assert [line["pci"] for line in log] == [gpu(5).pci, gpu(5).pci]
    assert uuid(5) in str(log.lines[0]["msg"])


def test_a_recovery_action_and_a_gpu_whose_condition_stays_are_told_apart(teller: Teller, log: LogLines) -> None:
    teller.state = replace(node(), conditions={uuid(1): (condition(),)})
    asked = facts.RecoveryActionChanged(gpu=uuid(0), action=RecoveryAction.RESET)
    reset = condition(None, reason="reset_required")
    teller.tell(asked, replace(teller.state, conditions=dict(teller.state.conditions) | {uuid(0): (reset,)}))
    assert [(line["event"], line["gpu"]) for line in log] == [("recovery.changed", uuid(0)), ("gpu.condemned", uuid(0))]


# ---------------------------------------------------------------- GPUs, driver, plan


def test_an_inventory_is_told_by_its_difference_only(teller: Teller, log: LogLines) -> None:
    ready = DriverStatus(state=DriverState.READY, driver=Driver(version="580.1", cuda=(13, 0)), generation=1)
    teller.state = State(run="r1")
    teller.tell(facts.DevicesChanged(what="scan"), replace(teller.state, driver=ready, gpus=(gpu(0), gpu(1))))
    assert log.events == ["devices.changed", "driver.found", "inventory.taken", "gpu.added", "gpu.added"]
    log.lines.clear()
    teller.tell(facts.DevicesChanged(what="scan"), replace(teller.state, revision=9, gpus=(gpu(0), gpu(1))))
    assert log.events == ["devices.changed"]
    teller.tell(facts.DevicesChanged(what="scan"), replace(teller.state, gpus=(gpu(1, monitored=False),)))
    assert log.events[2:] == ["inventory.taken", "gpu.removed", "gpu.unmonitored"]


@pytest.mark.parametrize(
    ("was", "now", "events"),
    [
        (DriverState.READY, DriverState.ABSENT, ["inventory.failed", "driver.lost"]),
        (DriverState.READY, DriverState.MISMATCH, ["inventory.failed", "driver.mismatched"]),
        (DriverState.UNKNOWN, DriverState.ABSENT, ["inventory.failed"]),
        (DriverState.ABSENT, DriverState.ABSENT, []),
    ],
)
def test_a_driver_that_goes_is_told_once(
    teller: Teller, log: LogLines, was: DriverState, now: DriverState, events: list[str]
) -> None:
    error = "no library"
    teller.state = replace(node(), driver=DriverStatus(state=was, error=error))
    after = teller.state if was is now else replace(teller.state, driver=DriverStatus(state=now, error=error))
    teller.tell(facts.InventoryFailed(state=now, error=error), after)
    assert log.events == events


def test_a_resource_that_does_not_fit_makes_the_plan_a_warning(teller: Teller, log: LogLines) -> None:
    over = Oversize(resource=GPU, bytes=5_000_000, limit=4_194_304, replicas=9000, largest=7000)
    plan = replace(node().plan, resources=(), oversize=(over,))
    teller.tell(facts.DevicesChanged(what="scan"), replace(teller.state, plan=plan))
    assert log.lines[-1]["level"] == "warning"
    assert "7000" in str(log.lines[-1]["oversize"])


# ---------------------------------------------------------------- config


def test_an_applied_config_is_told_by_the_keys_that_differ(teller: Teller, log: LogLines) -> None:
    shared = SharedResource(name=GPU, replicas=4)
    old = Config(time_slicing=TimeSlicing(resources=(shared,)))
    new = Config(
        time_slicing=TimeSlicing(resources=(replace(shared, replicas=2),)),
        flags=Flags(mig_strategy=MigStrategy.MIXED),
        mps=frozenset({ResourceName("nvidia.com/gpu.mps")}),
    )
    teller.state = replace(node(), config=ConfigState(config=old))
    read = facts.ConfigRead(config=new, digest="d2", path="/c.yaml")
    teller.tell(read, replace(teller.state, config=ConfigState(config=new, digest="d2")))
    assert log.events == ["config.read", "config.applied"]
    assert log.lines[1]["changes"] == [
        {"path": "flags.migStrategy", "before": "none", "after": "mixed"},
        {"path": "sharing.timeSlicing.resources[0].replicas", "before": "4", "after": "2"},
        {"path": "sharing.mps", "before": "", "after": "nvidia.com/gpu.mps"},
    ]


def test_a_resource_that_is_new_in_a_config_is_told_whole(teller: Teller, log: LogLines) -> None:
    new = Config(time_slicing=TimeSlicing(resources=(SharedResource(name=GPU, replicas=4),)))
    read = facts.ConfigRead(config=new, digest="d1")
    teller.tell(read, replace(teller.state, config=ConfigState(config=new, digest="d1")))
    (change,) = log.of("config.applied")[0]["changes"]  # type: ignore[misc]  # a list, as the schema says
    assert change["before"] == ""
    assert "replicas=4" in change["after"]


def test_a_rejected_config_names_its_lines_and_is_told_once(teller: Teller, log: LogLines) -> None:
    problems = tuple(ConfigProblem(line=n, column=3, path="sharing", message="no") for n in range(1, 12))
    rejected = facts.ConfigRejected(digest="d", path="/c.yaml", problems=problems)
    refused = ConfigState(rejected_digest="d", rejected_path="/c.yaml", problems=problems)
    teller.tell(rejected, replace(teller.state, config=refused))
    teller.tell(rejected)
    (told,) = log
    teller.tell(msgspec.structs.replace(rejected, asked=True))
    assert log.events == ["config.rejected", "config.rejected"], "unless a person asked to read it again"
    assert (told["event"], told["count"], len(told["problems"])) == ("config.rejected", 11, 8)  # type: ignore[arg-type]
    assert "/c.yaml:1:3: sharing: no (and 10 more)" in str(told["msg"])


def test_the_defaults_are_applied_with_nothing_that_differs(teller: Teller, log: LogLines) -> None:
    teller.tell(
        facts.ConfigRead(config=Config(), digest="d0", origin=facts.ConfigOrigin.DEFAULT),
        replace(teller.state, config=ConfigState(config=Config(), digest="d0")),
    )
    assert log.events == ["config.read", "config.applied"]
    assert log.lines[1]["count"] == 0
    teller.tell(
        facts.ConfigRead(config=Config(), digest="d1"),
        replace(teller.state, config=ConfigState(config=Config(), digest="d1")),
    )
    assert log.events[2:] == ["config.read"]


def test_a_list_of_devices_in_a_config_is_told_in_a_stable_order(teller: Teller, log: LogLines) -> None:
    def config(*indices: int) -> Config:
        listed = ListedDevices(indices=frozenset(indices))
        return Config(time_slicing=TimeSlicing(resources=(SharedResource(name=GPU, replicas=2, devices=listed),)))

    teller.state = replace(node(), config=ConfigState(config=config(0)))
    teller.tell(
        facts.ConfigRead(config=config(3, 1, 2), digest="d"),
        replace(teller.state, config=ConfigState(config=config(3, 1, 2))),
    )
    path = "sharing.timeSlicing.resources[0].devices.indices"
    assert log.lines[1]["changes"] == [{"path": path, "before": "0", "after": "1, 2, 3"}]


# ---------------------------------------------------------------- kubelet, holds


def test_the_kubelet_is_told_when_it_comes_is_replaced_and_goes(teller: Teller, log: LogLines) -> None:
    up = replace(teller.state, kubelet=Kubelet(identity=LIFE, life=1))
    teller.tell(facts.KubeletUp(identity=LIFE), up)
    teller.tell(facts.KubeletUp(identity=LIFE))
    teller.tell(facts.KubeletUp(identity=NEXT_LIFE), replace(up, kubelet=Kubelet(identity=NEXT_LIFE, life=2)))
    gone = replace(up, kubelet=Kubelet(reason="refused"))
    teller.tell(facts.KubeletDown(reason="refused"), gone)
    teller.tell(facts.KubeletDown(reason="refused"))
    assert log.events == ["kubelet.appeared", "kubelet.appeared", "kubelet.vanished"]


def test_a_list_is_told_by_what_it_changes_and_settles_the_agent(teller: Teller, log: LogLines) -> None:
    def served(healthy: int, unhealthy: int, revision: int) -> State:
        plugin = Plugin(
            socket="a", registered=LIFE, sent_revision=revision, sent_healthy=healthy, sent_unhealthy=unhealthy
        )
        return replace(node(), kubelet=Kubelet(identity=LIFE, plugins={GPU: plugin}))

    def sent(healthy: int, unhealthy: int, revision: int) -> facts.Advertised:
        return facts.Advertised(
            resource=GPU,
            stream=StreamId(1),
            revision=revision,
            nudge=0,
            healthy=healthy,
            unhealthy=unhealthy,
            size=90,
        )

    teller.state = replace(node(), kubelet=Kubelet(identity=LIFE, plugins={GPU: Plugin(socket="a", registered=LIFE)}))
    teller.tell(sent(8, 0, 5), served(8, 0, 5))
    teller.tell(sent(7, 1, 6), served(7, 1, 6))
    teller.tell(sent(7, 1, 6), served(7, 1, 6))
    teller.tell(sent(4, 0, 7), served(4, 0, 7))
    assert log.events.count("agent.settled") == 1
    told = [(line["level"], line["added"], line["removed"], line["turned"]) for line in log.of("devices.advertised")]
    assert told == [("info", 8, 0, 0), ("info", 0, 0, 1), ("debug", 0, 0, 0), ("info", 0, 4, 0)]


def test_holds_are_told_by_pod_with_how_long(teller: Teller, log: LogLines) -> None:
    held = {each.key: each for each in (hold(0), hold(1), hold(2, "eval-0"))}
    free = teller.state
    teller.tell(facts.CheckpointRead(entries=(), asked_at=0.0), replace(free, holds=held))
    teller.tell(facts.PodsListed(pods=(), asked_at=0.0), free, later=60.0)
    assert [(line["event"], line["pod"], line["count"]) for line in log] == [
        ("hold.begun", "ml/train-0", 2),
        ("hold.begun", "ml/eval-0", 1),
        ("hold.ended", "ml/train-0", 2),
        ("hold.ended", "ml/eval-0", 1),
    ]
    assert log.lines[2]["seconds"] == 160.0


def test_holds_that_the_kubelet_forgot_are_told_once_its_books_were_looked_at(teller: Teller, log: LogLines) -> None:
    held, lost = ({each.key: replace(each, suspended=gone) for each in (hold(0), hold(1))} for gone in (False, True))
    fresh = replace(teller.state, holds=held, books=Books(looked_life=1), kubelet=Kubelet(life=1))
    teller.state = fresh
    begun = replace(fresh, holds=lost, kubelet=Kubelet(life=2))
    teller.tell(facts.KubeletUp(identity=LIFE), begun)
    looked = replace(begun, books=Books(looked_life=2))
    teller.tell(facts.CheckpointFailed(error="gone", missing=True), looked)
    teller.tell(facts.CheckpointFailed(error="gone", missing=True), looked)
    told = log.of("hold.suspended")
    assert [(line["level"], line["pod"], line["count"]) for line in told] == [("warning", "ml/train-0", 2)]


def test_books_that_cannot_be_read_are_told_when_that_begins_and_ends(teller: Teller, log: LogLines) -> None:
    failed = replace(teller.state, books=Books(list_error="down", checkpoint_error="bad"))
    teller.tell(facts.CheckpointFailed(error="bad", missing=False), failed)
    teller.state = replace(failed, books=Books())
    teller.tell(facts.PodsListFailed(error="down"), failed)
    teller.tell(facts.PodsListFailed(error="down"))
    teller.tell(facts.CheckpointFailed(error="bad", missing=False))
    entry = CheckpointEntry(pod_uid="u", container="c", resource=GPU, id=DeviceId(uuid(0)))
    teller.tell(facts.PodsListed(pods=(PodDevices(pod=PodRef("a", "b"), devices=()),), asked_at=0.0))
    teller.tell(facts.CheckpointRead(entries=(entry,), asked_at=0.0))
    assert log.events == [
        "checkpoint.failed",
        "podresources.failed",
        "podresources.answered",
        "checkpoint.read",
    ]


# ---------------------------------------------------------------- what fails


def test_a_failure_is_told_at_each_doubling_and_at_its_end_with_how_long(teller: Teller, log: LogLines) -> None:
    healthy = teller.state
    fault = Fault(name=f"handler.register:{GPU}", message="no", since=WALL)
    teller.state = replace(healthy, faults={fault.name: fault})
    for attempt in range(1, 101):
        failed = facts.HandlerFailed(handler="register", lane=GPU, error="no", attempt=attempt, retry_in=1.0)
        teller.tell(failed, later=60.0)
    teller.tell(facts.HandlerRecovered(handler="register", lane=GPU, attempts=100), healthy)
    assert [line["attempt"] for line in log.of("handler.failed")] == [1, 2, 4, 8, 16, 32, 64]
    assert log.lines[-1]["event"] == "handler.recovered"
    assert log.lines[-1]["seconds"] == 6100.0


def test_a_fault_of_the_agent_is_told_when_it_begins_and_ends(teller: Teller, log: LogLines) -> None:
    fault = Fault(name="state.unwritable", message="read-only", since=WALL)
    own_line = Fault(name="source.udev", message="gone", since=WALL)
    healthy = teller.state
    faulty = replace(healthy, faults={fault.name: fault, own_line.name: own_line})
    teller.tell(facts.SourceFailed(source="udev", error="gone", attempt=1, retry_in=0.5), faulty)
    teller.tell(facts.SourceRecovered(source="udev", attempts=1), healthy)
    assert log.events == ["source.failed", "fault.begun", "source.recovered", "fault.ended"]


ALONE: list[tuple[Fact, str]] = [
    (facts.AgentWaiting(reason="another agent"), "agent.delayed"),
    (facts.AgentStarted(version="1", run="r", boot="b", simulated=True), "agent.started"),
    (facts.StateRestored(), "state.restored"),
    (facts.StateRestored(problem="not JSON"), "state.restored"),
    (facts.SignalReceived(name="HUP"), "agent.signalled"),
    (facts.AgentStopping(reason="SIGTERM"), "agent.stopped"),
    (facts.EccReported(gpu=uuid(0), placement=WHOLE_GPU), "ecc.reported"),
    (facts.FaultUnattributed(what="XID 31"), "fault.unattributed"),
    (facts.FaultCleared(gpu=uuid(9), reason="new board"), "fault.acknowledged"),
    (facts.WorkerStarted(pid=4), "worker.started"),
    (facts.WorkerLost(hung=True, error="silent", gpu_index=1), "worker.lost"),
    (facts.PluginSocketGone(resource=GPU, socket="a"), "plugin.swept"),
    (facts.PluginDirectoryGone(directory="/d"), "plugin.stranded"),
    (facts.PluginServing(resource=GPU, socket="a"), "plugin.served"),
    (facts.PluginClosed(resource=GPU), "plugin.closed"),
    (facts.PluginOffered(resource=GPU, socket="a"), "plugin.offered"),
    (facts.PluginRefused(resource=GPU, socket="a", error="no"), "plugin.refused"),
    (facts.PluginRegistered(resource=GPU, socket="a", identity=LIFE), "plugin.registered"),
    (facts.StreamOpened(resource=GPU, socket="a", stream=StreamId(1)), "stream.opened"),
    (facts.StreamEnded(resource=GPU, socket="a", stream=StreamId(1)), "stream.closed"),
    (facts.Granted(number=1, resource=GPU, ids=(DeviceId(f"{uuid(0)}::1"),)), "allocation.answered"),
    (facts.Refused(resource=GPU, ids=(DeviceId("x"),), message="unknown"), "allocation.refused"),
    (facts.Remembered(revision=3), "state.remembered"),
]


@pytest.mark.parametrize(("fact", "event"), ALONE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_fact_is_told_by_itself(teller: Teller, log: LogLines, fact: Fact, event: str) -> None:
    teller.tell(fact)
    assert log.events == [event]


def test_the_cause_is_told(teller: Teller, log: LogLines) -> None:
    teller.tell(facts.WorkerStarted(pid=4))
    teller.tell(facts.PluginClosed(resource=GPU), cause=1)
    assert [line.get("cause") for line in log] == [None, 1]


BY_DIFFERENCE = {facts.InventoryTaken, facts.GpuLost}
"""Facts that say nothing by themselves: what they changed is told."""

ELSEWHERE = {
    facts.ConfigRead, facts.ConfigRejected, facts.InventoryFailed, facts.XidReported, facts.RecoveryActionChanged,
    facts.DevicesChanged, facts.KubeletUp, facts.KubeletDown, facts.Advertised, facts.PodsListed, facts.PodsListFailed,
    facts.CheckpointRead, facts.CheckpointFailed, facts.DeadlinePassed, facts.HandlerFailed, facts.HandlerRecovered,
    facts.SourceFailed, facts.SourceRecovered,
}  # fmt: skip
"""Tested above, each with the state that it needs."""


def test_no_fact_was_forgotten() -> None:
    every = {kind for kind in vars(facts).values() if isinstance(kind, type) and issubclass(kind, Fact)} - {Fact}
    assert every == {type(fact) for fact, _ in ALONE} | BY_DIFFERENCE | ELSEWHERE


def test_an_applied_config_tells_who_says_each_key(teller: Teller, log: LogLines) -> None:
    """CFG-35"""
    flag = Setting(path="flags.plugin.passDeviceSpecs", value=True, source=Source.FLAG, name="--pass-device-specs")
    read = parse(b"flags: {migStrategy: single}", path="/c.yaml", overrides=(flag,))
    assert isinstance(read, Accepted)
    fact = facts.ConfigRead(config=read.config, digest=read.digest)
    teller.tell(fact, replace(teller.state, config=ConfigState(config=read.config, digest=read.digest)))
    told = [(change["path"], change["after"], change["source"]) for change in log.of("config.applied")[0]["changes"]]  # type: ignore[misc]  # a list, as the schema says
    assert told[:2] == [
        ("flags.migStrategy", "single", "file"),
        ("flags.plugin.passDeviceSpecs", "true", "flag --pass-device-specs"),
    ]
