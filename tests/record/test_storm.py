"""A storm stays short and says what it hid."""

from __future__ import annotations

import pytest

from reactor import events as facts
from reactor.model.condition import WHOLE_GPU
from reactor.model.ids import DeviceId, ResourceName
from reactor.model.value import replace
from reactor.record.recorder import Recorder
from reactor.record.storm import WIDE
from tests.loglines import LogLines
from tests.record.world import GPU, Teller, condition, node, uuid


def xid(index: int, code: int = 13) -> facts.XidReported:
    return facts.XidReported(gpu=uuid(index), placement=WHOLE_GPU, xid=code)


@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_ten_thousand_xids_in_a_minute_are_under_a_hundred_lines(log: LogLines, gpus: int) -> None:
    """XTR-09"""
    teller = Teller(Recorder(log, node="node-1"), state=node(gpus))
    sick = replace(teller.state, conditions={uuid(index): (condition(),) for index in range(gpus)})
    for number in range(10_000):
        teller.tell(xid(number % gpus, 79), sick, later=0.006)
    teller.recorder.flush()
    assert len(log) < 100
    shown = len(log.of("xid.reported"))
    hidden = sum(int(str(line["hidden"])) for line in log.of("xid.coalesced"))
    assert shown + hidden == 10_000
    assert len(log.of("gpu.condemned")) == gpus


def test_first_lines_are_whole_then_each_doubling_is_summed_up(teller: Teller, log: LogLines) -> None:
    for _ in range(64):
        teller.tell(xid(0))
    assert log.events[:4] == ["xid.reported"] * 4
    summaries = log.lines[4:]
    assert [(line["event"], line["count"], line["hidden"], line["gpu"]) for line in summaries] == [
        ("xid.coalesced", 8, 4, uuid(0)),
        ("xid.coalesced", 16, 8, uuid(0)),
        ("xid.coalesced", 32, 16, uuid(0)),
        ("xid.coalesced", 64, 32, uuid(0)),
    ]
    assert {line["first_ts"] for line in summaries} == {log.lines[0]["ts"]}


def test_a_storm_on_one_gpu_hides_nothing_of_another(teller: Teller, log: LogLines) -> None:
    for _ in range(500):
        teller.tell(xid(0))
    teller.tell(xid(1))
    assert log.lines[-1]["gpu"] == uuid(1)
    assert log.lines[-1]["event"] == "xid.reported"


def test_the_end_of_the_minute_tells_what_was_hidden_and_begins_anew(teller: Teller, log: LogLines) -> None:
    for _ in range(6):
        teller.tell(xid(0))
    assert len(log) == 4
    teller.tell(facts.WorkerStarted(pid=1), later=60.0)
    assert [line["event"] for line in log.lines[4:]] == ["xid.coalesced", "worker.started"]
    assert (log.lines[4]["count"], log.lines[4]["hidden"]) == (6, 2)
    teller.tell(xid(0))
    assert log.events[-1] == "xid.reported"


def test_a_storm_over_many_subjects_is_summed_up_as_a_whole(teller: Teller, log: LogLines) -> None:
    for number in range(1000):
        resource = ResourceName(f"example.com/r{number}")
        teller.tell(facts.Refused(resource=resource, ids=(DeviceId("x"),), message="unknown"))
    teller.recorder.flush()
    assert len(log.of("allocation.refused")) == WIDE
    summaries = log.of("log.coalesced")
    assert all(line["of"] == "allocation.refused" and "resource" not in line for line in summaries)
    assert sum(int(str(line["hidden"])) for line in summaries) == 1000 - WIDE
    assert summaries[-1]["count"] == 1000


def test_a_summary_keeps_level_and_subject_of_what_it_hides(teller: Teller, log: LogLines) -> None:
    for number in range(64):
        teller.tell(facts.Granted(number=number + 1, resource=GPU, ids=(DeviceId(uuid(0)),)))
    (summary,) = log.of("log.coalesced")
    assert (summary["level"], summary["resource"], summary["hidden"]) == ("info", GPU, 32)


def test_nothing_is_summed_up_where_nothing_was_hidden(teller: Teller, log: LogLines) -> None:
    teller.tell(xid(0))
    teller.recorder.flush()
    assert log.events == ["xid.reported"]


def test_many_kinds_of_lines_share_a_budget_and_what_begins_is_told_beyond_it(teller: Teller, log: LogLines) -> None:
    """XTR-09: a dozen kinds with a burst and summaries each would be 200 lines."""
    for number in range(2000):
        index = number % 16
        for fact in (
            facts.DevicesChanged(what=f"uevent {index}"),
            facts.WorkerLost(hung=False, error=f"error {number}"),
            facts.PodsListFailed(error=f"error {number}"),
            xid(index),
        ):
            teller.tell(fact, later=0.007)
    begun = len(log)
    teller.tell(facts.DevicesChanged(what="one more"))
    assert len(log) == begun
    teller.tell(facts.SourceFailed(source="another", error="x", attempt=1, retry_in=1.0))
    assert log.lines[-1]["source"] == "another"
    teller.tell(facts.WorkerStarted(pid=1))
    assert log.lines[-1]["event"] == "worker.started"
    teller.recorder.flush()
    assert len(log) < 100
