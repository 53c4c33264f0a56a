"""What a scrape shows, read by the parser of Prometheus' own client."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from reactor import events as e
from reactor.model.condition import WHOLE_GPU, Placement
from reactor.model.config import ConfigProblem
from reactor.model.gpu import DriverState, FailureKind, GpuFailure, Inventory
from reactor.model.hold import HoldKey
from reactor.model.ids import DeviceId
from reactor.model.kubelet import SocketIdentity, StreamId
from reactor.model.value import replace
from reactor.state import Books, Leaving, State
from reactor.status.http import Request
from reactor.status.metrics.collect import EVENT_NAMES
from reactor.status.metrics.families import FAMILIES, XIDS, Kind
from reactor.status.metrics.metrics import Metrics, answer_metrics
from reactor.status.metrics.page import PAGE, page
from tests.status.metrics.world import Scrape, Watched, parse
from tests.status.node import GPUS, READY, SNAPSHOT, WALL, WHOLE, gpu, hold, holding, listed, snapshot

ROOT = Path(__file__).parents[3]
A, B = (one.uuid for one in GPUS)


@pytest.fixture
def node() -> Watched:
    config = replace(READY.config, judged=True)
    return Watched(state=replace(READY, config=config, books=Books(checkpoint_known=True)), snapshot=SNAPSHOT)


def xid(code: int, uuid=A) -> e.XidReported:
    return e.XidReported(gpu=uuid, placement=WHOLE_GPU, xid=code)


def test_a_fault_is_counted_and_stands_until_it_is_over(node: Watched):
    """OBS-02"""
    before = node.scrape()
    assert before.all("gpu_fault_info") == []
    assert before.one("gpu_health", gpu_uuid=A, state="healthy") == 1
    assert before.one("xid_errors_total", gpu_uuid=A, xid="79") == 0
    node.publish(xid(79), xid(79), xid(13, B))
    after = node.scrape()
    assert after.one("gpu_health", gpu_uuid=A, state="unhealthy") == 1
    assert sum(after.all("gpu_health", gpu_uuid=A)) == 1
    assert after.one("gpu_health", gpu_uuid=B, state="healthy") == 1
    assert after.one("xid_errors_total", gpu_uuid=A, xid="79") == 2
    assert after.one("xid_errors_total", gpu_uuid=B, xid="13") == 1
    assert after.one("gpu_fault_info", gpu_uuid=A, fault="restart", reason="xid", xid="79") == 1
    assert after.one("gpu_health_transition_timestamp_seconds", gpu_uuid=A) == WALL
    assert after.one("health_decisions_total", error_class="restart", verdict="condemned") == 1
    assert after.one("health_decisions_total", error_class="restart", verdict="counted") == 1
    assert after.one("health_decisions_total", error_class="application", verdict="recorded") == 1


def test_ten_thousand_codes_are_ten_series_for_a_gpu(node: Watched):
    for code in range(10_000):
        node.tally.record(e.Event(seq=1, cause=None, at=0.0, wall=WALL, fact=xid(code)), node.state, node.state)
    scrape = node.scrape()
    assert len(scrape.all("xid_errors_total", gpu_uuid=A)) == len(XIDS) + 1
    assert sum(scrape.all("xid_errors_total", gpu_uuid=A)) == 10_000
    assert scrape.one("xid_errors_total", gpu_uuid=A, xid="other") == 10_000 - len(XIDS)


def test_standing_faults_of_many_codes_share_a_series(node: Watched):
    node.publish(*(xid(code) for code in range(900, 950)), xid(79))
    faults = node.scrape().labels("gpu_fault_info")
    assert sorted(labels["xid"] for labels in faults) == ["79", "other"]


def test_a_held_gpu_that_falls_ill_shows_as_allocated_and_unhealthy(node: Watched):
    """HLT-30"""
    node.state = holding(node.state, hold(GPUS[0]))
    assert node.scrape().one("devices_allocated_unhealthy", resource_name=WHOLE) == 0
    node.publish(xid(79))
    scrape = node.scrape()
    assert scrape.one("devices_allocated", resource_name=WHOLE) == 1
    assert scrape.one("devices_allocated_unhealthy", resource_name=WHOLE) == 1


def test_every_id_of_a_list_is_in_one_state(node: Watched):
    ill, waits = listed(GPUS[0], reason="XID 79"), listed(GPUS[1], reason="held whole")
    node.publish(xid(79))
    node.snapshot = snapshot(ill, waits)
    scrape = node.scrape()
    shown = {labels["state"]: value for _, labels, value in scrape.samples if _ == "gpu_reactor_devices"}
    assert shown == {"healthy": 0, "unhealthy": 1, "withheld": 1, "leaving": 0}


def test_the_outcome_of_config_texts_is_counted_and_the_newest_is_judged(node: Watched):
    problem = ConfigProblem(line=1, column=1, path="x", message="bad")
    node.publish(e.ConfigRejected(digest="d2", path="c.yaml", problems=(problem,)))
    scrape = node.scrape()
    assert scrape.one("config_last_reload_successful") == 0
    assert scrape.one("config_reloads_total", result="rejected") == 1
    assert scrape.one("fault_info", name="config.rejected") == 1
    assert "config.rejected" in node.state.faults, "the same name in status"
    config = node.state.config.config
    assert config is not None
    node.publish(e.ConfigRead(config=config, digest="d3"))
    scrape = node.scrape()
    assert scrape.one("config_last_reload_successful") == 1
    assert scrape.one("config_reloads_total", result="unchanged") == 1
    assert scrape.all("fault_info") == []


def test_failures_of_sources_and_handlers_show_under_their_names(node: Watched):
    node.publish(e.SourceFailed(source="kubelet", error="x", attempt=1, retry_in=1.0))
    node.publish(e.HandlerFailed(handler="register", lane=WHOLE, error="x", attempt=1, retry_in=1.0))
    node.tally.ran("discover", 0.02, ok=True)
    scrape = node.scrape()
    assert (scrape.one("source_up", source="kubelet"), scrape.one("source_up", source="health")) == (0, 1)
    assert scrape.one("source_failures_total", source="kubelet") == 1
    assert scrape.one("fault_info", name="source.kubelet") == 1
    assert scrape.one("fault_info", name=f"handler.register:{WHOLE}") == 1
    assert scrape.one("registrations_total", resource_name=WHOLE, result="error") == 1
    assert scrape.one("handler_consecutive_failures", handler="register") == 3
    assert scrape.one("handler_mailbox_depth", handler="register") == 2
    assert scrape.one("handler_runs_total", handler="discover", result="ok") == 1
    assert scrape.one("handler_duration_seconds_bucket", handler="discover", le="0.1") == 1
    assert scrape.one("handler_duration_seconds_bucket", handler="discover", le="0.01") == 0
    assert scrape.one("log_lines_dropped_total", reason="storm") == 7


def test_what_the_kubelet_asks_and_is_told_is_counted(node: Watched):
    node.publish(
        e.Granted(number=1, resource=WHOLE, ids=(DeviceId(A),)),
        e.Refused(resource=WHOLE, ids=(DeviceId("x"),), message="no"),
        advertised(101),
    )
    scrape = node.scrape()
    assert scrape.one("allocations_total", resource_name=WHOLE, result="ok") == 1
    assert scrape.one("allocations_total", resource_name=WHOLE, result="refused") == 1
    assert scrape.one("watch_sends_total", resource_name=WHOLE) == 1
    assert scrape.one("watch_message_bytes", resource_name=WHOLE) == 123
    assert scrape.one("watch_streams", resource_name=WHOLE) == 1
    assert scrape.one("kubelet_up") == 1
    assert scrape.one("events_total", event="granted") == 1


def test_an_answer_to_the_kubelet_has_its_time(node: Watched):
    node.publish(
        e.Granted(number=1, resource=WHOLE, ids=(DeviceId(A),), took=0.002),
        e.Refused(resource=WHOLE, ids=(DeviceId("x"),), message="no", took=0.5),
    )
    scrape = node.scrape()
    assert scrape.one("allocation_duration_seconds_count", resource_name=WHOLE) == 2
    assert scrape.one("allocation_duration_seconds_sum", resource_name=WHOLE) == 0.502
    assert scrape.one("allocation_duration_seconds_bucket", resource_name=WHOLE, le="0.0025") == 1


def test_calls_of_nvml_have_their_time_and_its_errors_their_kind(node: Watched):
    driver = node.state.driver.driver
    assert driver is not None
    lost = GpuFailure(index=1, kind=FailureKind.LOST, error="x", uuid=B)
    first = Inventory(driver=driver, gpus=GPUS[:1], failures=(lost,), generation=1, took=0.05, opened=2.0)
    unmeasured = Inventory(driver=driver, gpus=GPUS, generation=1)
    node.publish(*(e.InventoryTaken(inventory=one) for one in (first, replace(first, opened=None), unmeasured)))
    node.publish(
        e.InventoryFailed(state=DriverState.HUNG, error="x"),
        e.DevicesChanged(what="event watch restarted", error="x"),
        e.DevicesChanged(what="MIG event"),
    )
    scrape = node.scrape()
    assert scrape.one("nvml_call_duration_seconds_sum", call="init") == 2.0
    assert scrape.one("nvml_call_duration_seconds_count", call="scan") == 2
    assert scrape.one("nvml_call_duration_seconds_bucket", call="scan", le="0.1") == 2
    counted = {
        (labels["call"], labels["error"]): value
        for name, labels, value in scrape.samples
        if name == "gpu_reactor_nvml_errors_total" and value
    }
    assert counted == {("gpu", "lost"): 2, ("scan", "hung"): 1, ("wait", "error"): 1}


def test_when_a_source_was_heard_last_and_how_late_the_loops_are_is_told(node: Watched):
    class Deaf:
        def record(self, event: e.Event, before: State, after: State) -> None: ...

    published: list[e.Fact] = []

    def publish(fact: e.Fact) -> e.Event:
        published.append(fact)
        return e.Event(seq=1, cause=None, at=0.0, wall=WALL, fact=fact)

    metrics = Metrics(Deaf(), dict)
    metrics.hearing("kubelet", publish)(e.KubeletDown(reason="x"))
    metrics.late("trio", 0.2)
    metrics.late("asyncio", -0.1)
    node.tally = metrics.tally
    scrape = node.scrape()
    assert published == [e.KubeletDown(reason="x")]
    assert scrape.labels("source_last_event_timestamp_seconds") == [{"source": "kubelet"}]
    assert scrape.one("source_last_event_timestamp_seconds", source="kubelet") == WALL
    assert scrape.one("loop_lag_seconds_bucket", loop="trio", le="0.1") == 0
    assert scrape.one("loop_lag_seconds_bucket", loop="trio", le="0.5") == 1
    assert scrape.one("loop_lag_seconds_sum", loop="asyncio") == 0


def advertised(revision: int) -> e.Advertised:
    return e.Advertised(
        resource=WHOLE, stream=StreamId(1), revision=revision, nudge=0, healthy=1, unhealthy=1, size=123
    )


def test_a_gpu_that_is_gone_takes_its_series_along_unless_it_has_a_fault(node: Watched):
    node.publish(xid(79), xid(13, B))
    node.state = replace(node.state, gpus=())
    scrape = node.scrape()
    assert scrape.one("gpu_health", gpu_uuid=A, state="gone") == 1
    assert scrape.all("gpu_health", gpu_uuid=B) == []
    assert scrape.all("xid_errors_total", gpu_uuid=B) == []


def test_sixteen_gpus_make_less_than_a_thousand_series(node: Watched):
    node.state = replace(node.state, gpus=tuple(gpu(index) for index in range(16)))
    assert len(node.scrape().samples) < 1000


def test_series_are_there_from_the_start_and_none_is_called_created(node: Watched):
    scrape = node.scrape()
    names = {name for name, _, _ in scrape.samples}
    assert not [name for name in names if name.endswith("_created")]
    late = {
        "fault_info",
        "gpu_fault_info",
        "gpu_health_transition_timestamp_seconds",
        "source_last_event_timestamp_seconds",
        "watch_message_bytes",
    }
    shown = {family.name for family in FAMILIES if scrape.all(family.name) or scrape.all(f"{family.name}_count")}
    assert {family.name for family in FAMILIES} - shown == late
    assert len(scrape.all("events_total")) == len(EVENT_NAMES)


def test_openmetrics_is_served_to_who_asks_for_it(node: Watched):
    assert node.text("application/openmetrics-text; version=1.0.0").endswith("# EOF\n")
    assert not node.text().endswith("# EOF\n")


def test_other_paths_are_refused(node: Watched):
    assert answer_metrics(node.look)(Request(method="GET", path="/")).status == 404


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_keep_the_manners(family):
    assert re.fullmatch(r"[a-z][a-z_]*[a-z]", family.name)
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert not {"node", "instance", "job", "gpu"} & set(family.labels)
    assert bool(family.buckets) == (family.kind is Kind.HISTOGRAM)
    assert list(family.buckets) == sorted(family.buckets)


def test_the_page_is_the_catalogue():
    assert (ROOT / PAGE).read_text() == page(), "run: make schema"


def test_an_agent_without_metrics_does_not_load_the_client_library():
    program = "import sys, reactor.agent; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.strip() == "False"


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool")
def test_promtool_has_nothing_to_say(node: Watched):
    node.publish(xid(79), advertised(101))
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=node.text().encode(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# ---------------------------------------------------------------- reactions


def seconds(scrape: Scrape, trigger: str) -> tuple[float, float]:
    return (
        scrape.one("reaction_seconds_count", trigger=trigger),
        round(scrape.one("reaction_seconds_sum", trigger=trigger), 6),
    )


def test_a_reaction_lasts_from_the_event_to_the_list_that_shows_it(node: Watched):
    node.post()
    revision = node.publish(xid(79))
    node.state = replace(node.state, revision=revision)
    node.post()
    node.publish(advertised(revision - 50), later=0.5)
    assert seconds(node.scrape(), "health") == (0, 0)
    node.publish(advertised(revision), later=0.25)
    assert seconds(node.scrape(), "health") == (1, 0.75)
    node.publish(advertised(revision), later=5)
    assert seconds(node.scrape(), "health") == (1, 0.75), "told once"


def test_what_changes_no_list_is_not_waited_for(node: Watched):
    node.post()
    node.publish(xid(79, gpu(7).uuid))
    node.post()
    revision = node.publish(xid(79), later=60)
    node.state = replace(node.state, revision=revision)
    node.post()
    node.publish(advertised(revision), later=1)
    assert seconds(node.scrape(), "health") == (1, 1)


def test_a_new_kubelet_waits_for_every_list(node: Watched):
    node.post()
    node.publish(e.KubeletUp(identity=SocketIdentity(inode=8, ctime_ns=2)))
    node.publish(e.StreamOpened(resource=WHOLE, socket="gpu-reactor-1.sock", stream=StreamId(2)), later=1)
    node.publish(msgspec.structs.replace(advertised(10_000), stream=StreamId(2)), later=1)
    assert seconds(node.scrape(), "kubelet") == (1, 2)


def test_what_a_scan_shows_happened_when_the_scan_was_asked_for(node: Watched):
    node.post()
    asked = node.publish(e.DevicesChanged(what="uevent"))
    inventory = e.InventoryTaken(
        inventory=Inventory(driver=node.state.driver.driver, gpus=(*GPUS, gpu(2)), generation=1)
    )
    revision = node.publish(inventory, cause=asked, later=2)
    node.state = replace(node.state, revision=revision)
    node.post()
    node.publish(advertised(revision), later=1)
    assert seconds(node.scrape(), "hotplug") == (1, 3)


def test_a_part_of_a_gpu_with_a_fault_makes_it_suspect(node: Watched):
    node.publish(e.XidReported(gpu=A, placement=Placement(gi=1, ci=0), xid=95))
    assert node.scrape().one("gpu_health", gpu_uuid=A, state="suspect") == 1


def test_the_parser_reads_what_it_should():
    assert list(parse("gpu_reactor_x 1\n")) == [("gpu_reactor_x", {}, 1.0)]


def test_ids_that_leave_or_were_refused_have_their_states(node: Watched):
    away, refused = listed(GPUS[0], reason="is no longer offered"), listed(GPUS[1], reason="its node is missing")
    node.state = replace(
        node.state,
        leaving={HoldKey(WHOLE, away.id): Leaving(gpu=A, numa=(), revision=1)},
        refused={HoldKey(WHOLE, refused.id): "its node is missing"},
    )
    node.snapshot = snapshot(away, refused)
    scrape = node.scrape()
    shown = {labels["state"]: value for _, labels, value in scrape.samples if _ == "gpu_reactor_devices"}
    assert shown == {"healthy": 0, "unhealthy": 1, "withheld": 0, "leaving": 1}


def test_the_driver_and_the_config_in_force_are_told(node: Watched):
    scrape = node.scrape()
    assert scrape.labels("driver_info") == [{"driver_version": "580.95.05", "cuda_version": "13.0"}]
    assert scrape.one("driver_state", state="ready") == 1
    assert scrape.labels("config_info") == [{"origin": "file", "digest": "sha256-of-it"}]
    assert scrape.one("config_last_reload_success_timestamp_seconds") == WALL - 60
    node.publish(e.InventoryFailed(state=DriverState.ABSENT, error="no driver"), e.WorkerLost(hung=True, error="x"))
    scrape = node.scrape()
    assert (scrape.one("driver_state", state="absent"), scrape.one("driver_state", state="ready")) == (1, 0)
    assert scrape.one("scans_total", result="failed") == 1
    assert scrape.one("nvml_workers_lost_total", cause="hung") == 1
