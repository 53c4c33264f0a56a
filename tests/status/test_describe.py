from __future__ import annotations

import json

import pytest

from reactor.model.condition import FaultClass, Placement
from reactor.model.config import Config, ConfigProblem, Unserved
from reactor.model.hold import HoldKey
from reactor.model.ids import device_id
from reactor.model.value import replace
from reactor.plan import EMPTY, Oversize, Plan, PlannedGroup, PlannedResource
from reactor.state import DriverStatus, Fault, Kubelet, Leaving, State
from reactor.status.describe import describe
from tests.status.node import (
    GPUS,
    PLUGIN,
    READY,
    SNAPSHOT,
    WALL,
    WHOLE,
    foreign_hold,
    hold,
    holding,
    listed,
    snapshot,
    xid,
)

FIRST, SECOND = GPUS


def test_a_fresh_agent_can_be_described():
    document = describe(State(), snapshot())
    assert document["v"] == 1
    assert document["agent"]["ready"] is False
    assert document["config"]["in_force"] is False
    assert document["gpus"] == []


def test_living_tasks_are_counted_by_loop():
    assert describe(State(), snapshot(), {"trio": 9, "asyncio": 3})["agent"]["tasks"] == {"trio": 9, "asyncio": 3}


def test_the_document_is_json():
    state = holding(replace(READY, conditions={FIRST.uuid: (xid(),)}), hold(FIRST), foreign_hold())
    document = describe(state, SNAPSHOT)
    assert json.loads(json.dumps(document)) == document


def test_a_resource_is_counted_as_the_kubelet_sees_it():
    (resource,) = describe(holding(READY, hold(SECOND)), SNAPSHOT)["resources"]
    assert resource == {
        "name": "nvidia.com/gpu",
        "planned": 2,
        "healthy": 2,
        "unhealthy": 0,
        "tombstones": 0,
        "held": 1,
        "reasons": {},
        "registered": True,
        "socket": "gpu-reactor-1.sock",
        "streams": 1,
        "sent": {"healthy": 2, "unhealthy": 0, "revision": 5},
        "current": True,
    }


def test_ids_that_are_listed_though_not_planned_are_tombstones():
    shared = Plan(resources=(PlannedResource(name=WHOLE, groups=(PlannedGroup(gpu=FIRST.uuid, replicas=2),)),))
    owned = "owned whole by default/a-pod"
    listing = snapshot(listed(FIRST, 0, reason=owned), listed(FIRST, 1, reason=owned), listed(FIRST, reason="leaving"))
    (resource,) = describe(replace(READY, plan=shared), listing)["resources"]
    assert (resource["planned"], resource["healthy"], resource["unhealthy"]) == (2, 0, 3)
    assert resource["tombstones"] == 1
    assert resource["reasons"] == {owned: 2, "leaving": 1}


def test_a_resource_without_a_server_or_offer_is_shown_all_the_same():
    state = replace(READY, kubelet=replace(READY.kubelet, plugins={}))
    (resource,) = describe(state, snapshot())["resources"]
    assert (resource["planned"], resource["registered"], resource["sent"]) == (2, False, None)


def test_a_list_that_is_older_than_the_offer_is_not_current():
    newer = snapshot(listed(FIRST), listed(SECOND), revision=6)
    assert describe(READY, newer)["resources"][0]["current"] is False
    unwatched = replace(READY, kubelet=replace(READY.kubelet, plugins={WHOLE: replace(PLUGIN, streams=frozenset())}))
    assert describe(unwatched, SNAPSHOT)["resources"][0]["current"] is False


@pytest.mark.parametrize(
    ("conditions", "health"),
    [
        ((), "healthy"),
        ((xid(),), "unhealthy"),
        ((xid(placement=Placement(gi=1)),), "suspect"),
        ((xid(fault=FaultClass.UNREACHABLE, reason="hung"),), "unknown"),
        ((xid(fault=FaultClass.UNREACHABLE, reason="hung"), xid()), "unhealthy"),
        ((xid(fault=FaultClass.UNREACHABLE, reason="lost"),), "unhealthy"),
    ],
)
def test_health_of_a_gpu_follows_its_conditions(conditions, health: str):
    first, second = describe(replace(READY, conditions={FIRST.uuid: conditions}), SNAPSHOT)["gpus"]
    assert first["health"] == health
    assert first["reasons"] == [condition.message for condition in conditions]
    assert second["health"] == "healthy"


def test_a_gpu_that_is_gone_stays_in_sight_while_it_has_a_fault_or_a_holder():
    state = holding(
        replace(READY, gpus=(), plan=EMPTY, conditions={FIRST.uuid: (xid(),)}, pci={FIRST.uuid: FIRST.pci}),
        hold(SECOND, 3),
    )
    first, second = describe(state, snapshot())["gpus"]
    assert (first["uuid"], first["pci"], first["index"], first["health"]) == (FIRST.uuid, FIRST.pci, None, "gone")
    assert (second["uuid"], second["pci"]) == (SECOND.uuid, None)
    assert second["holds"][0]["pod"] == "default/a-pod"


def test_config_tells_what_is_in_force_and_what_was_rejected():
    config = replace(
        READY.config,
        config=Config(unserved=(Unserved(path="flags.gdsEnabled", message="GDS is not set up"),)),
        rejected_path="c.yaml",
        rejected_digest="other",
        problems=(ConfigProblem(line=3, column=5, path="flags.x", message="unknown key"),),
    )
    large = Oversize(resource=WHOLE, bytes=5_000_000, limit=4_194_304, replicas=9000, largest=7000)
    plan = replace(READY.plan, notices=("devices: 9 names no GPU",), oversize=(large,))
    document = describe(replace(READY, config=config, plan=plan), SNAPSHOT)["config"]
    assert document["in_force"] is True
    assert document["origin"] == "file"
    assert document["rejected"] is not None
    assert document["rejected"]["problems"][0]["text"] == "c.yaml:3:5: flags.x: unknown key"
    assert document["unserved"] == [{"path": "flags.gdsEnabled", "message": "GDS is not set up"}]
    assert document["notices"][0] == "devices: 9 names no GPU"
    assert "7000 replicas fit" in document["notices"][1]


def test_driver_kubelet_and_faults_are_told():
    state = replace(
        READY,
        simulated=True,
        driver=DriverStatus(error="no library"),
        kubelet=Kubelet(reason="refused", life=2),
        faults={"b": Fault(name="b", message="2", since=WALL), "a": Fault(name="a", message="1", since=WALL, count=3)},
    )
    document = describe(state, SNAPSHOT)
    assert document["agent"]["simulated"] is True
    assert (document["driver"]["state"], document["driver"]["version"]) == ("unknown", "")
    assert (document["kubelet"]["up"], document["kubelet"]["reason"]) == (False, "refused")
    assert [fault["name"] for fault in document["faults"]] == ["a", "b"]


def test_what_leaves_and_what_was_refused_is_shown_with_its_reason():
    key = HoldKey(WHOLE, device_id(GPUS[0].uuid))
    state = replace(
        READY,
        leaving={key: Leaving(gpu=GPUS[0].uuid, numa=(), revision=3, sent_at=1.0, reason="is no longer offered")},
        refused={key: "its node is missing"},
        deadlines={"leaving": 6.0},
    )
    document = describe(state, SNAPSHOT)
    entry = {"resource": WHOLE, "id": key.id}
    assert document["leaving"] == [{**entry, "reason": "is no longer offered", "sent": True}]
    assert document["refused"] == [{**entry, "reason": "its node is missing"}]
    assert document["deadlines"] == {"leaving": 6.0}
