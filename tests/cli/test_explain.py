"""``explain``: reasons, conditions, holds, and the chain of causes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import trio

from reactor.cli import main
from reactor.cli.chain import Chains
from reactor.cli.explain import (
    Unknown,
    find_gpu,
    find_resource,
    is_of_interest,
    newest_about,
    tell_device,
    tell_gpu,
    tell_resource,
)
from reactor.model.condition import FaultClass
from reactor.model.ids import device_id
from reactor.model.kubelet import Registration
from reactor.model.value import replace
from reactor.state import Fault, State
from reactor.status.describe import describe, describe_device
from tests.cli.test_events import line
from tests.status.node import GPUS, READY, SNAPSHOT, WALL, WHOLE, hold, holding, listed, snapshot, xid
from tests.status.test_admin import admin

ILL = holding(replace(READY, conditions={GPUS[0].uuid: (xid(fault=FaultClass.RESTART, count=2),)}), hold(GPUS[0]))


def document(state: State, shown=SNAPSHOT):
    return json.loads(json.dumps(describe(state, shown)))


def test_a_gpu_is_explained_by_its_faults_its_listing_and_its_holders():
    told = list(tell_gpu(find_gpu(document(ILL), "0"), WALL))
    assert told == [
        f"GPU 0 ({GPUS[0].product}, {GPUS[0].uuid}, {GPUS[0].pci}) is unhealthy",
        "  XID 79: GPU has fallen off the bus, for 30 s, 2 times: a reboot lifts it",
        "  listed as nvidia.com/gpu, whole",
        f"  held by default/a-pod as {GPUS[0].uuid} of nvidia.com/gpu, for 20 s",
    ]


def test_a_resource_is_explained_by_its_ids_and_its_gpus():
    shown = snapshot(listed(GPUS[0], reason="XID 79"), listed(GPUS[1]))
    doc = document(ILL, shown)
    told = list(tell_resource(doc["resources"][0], doc))
    assert told[:2] == ["nvidia.com/gpu: 2 ids planned, 1 healthy, 1 not handed out, 1 held", "  1 x XID 79"]
    assert "  the kubelet has the newest list" in told
    assert "  GPU 1: healthy" in told


def test_a_resource_that_the_kubelets_plugin_watcher_did_not_take_is_explained_in_its_words():
    found = replace(READY.kubelet, registration=Registration.WATCHER)
    plugin = replace(READY.kubelet.plugins[WHOLE], registered=None, registered_at=None, streams=frozenset())
    state = replace(READY, kubelet=replace(found, plugins={WHOLE: plugin}))
    doc = document(state)
    told = list(tell_resource(doc["resources"][0], doc))
    assert "  not registered with the kubelet: its plugin watcher has not taken it yet" in told
    name = f"registration.refused:{WHOLE}"
    doc = document(replace(state, faults={name: Fault(name=name, message="no such handler", since=WALL)}))
    told = list(tell_resource(doc["resources"][0], doc))
    assert "  not registered with the kubelet, which said: no such handler" in told


def test_an_id_is_explained_by_its_list_and_its_gpu():
    shown = snapshot(listed(GPUS[0], reason="XID 79"), listed(GPUS[1]))
    device = describe_device(GPUS[0].uuid, ILL, shown)
    told = list(tell_device(device, document(ILL, shown), WALL))
    assert told[0] == f"{GPUS[0].uuid} is not handed out: XID 79, in the list of nvidia.com/gpu"
    share = describe_device(device_id(GPUS[1].uuid, 3), ILL, shown)
    assert next(tell_device(share, document(ILL), WALL)).endswith("is in no list: share 3 is not planned")


@pytest.mark.parametrize("name", ["9", "GPU-none", ""])
def test_what_is_not_there_is_answered_with_what_is(name: str):
    with pytest.raises(Unknown, match=f"this node shows 0 .{GPUS[0].uuid}"):
        find_gpu(document(READY), name)


def test_an_id_of_nobody_is_unknown():
    with pytest.raises(Unknown, match="it is in no list"):
        list(tell_device(describe_device("nvidia0", READY, SNAPSHOT), document(READY), WALL))


def test_the_newest_events_about_it_are_found_by_any_name_they_use():
    lines = [line(seq, "x.y", gpu="A") for seq in range(1, 20)] + [line(30, "x.y", ids=["A"]), line(31, "x.y", gpu="B")]
    assert newest_about(lines, {"A"}) == [*(("r1", seq) for seq in range(13, 20)), ("r1", 30)]


async def call(*words: str) -> int:
    return await trio.to_thread.run_sync(partial(main, words))


async def test_the_agent_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(tmp_path / "a.sock")
    async with admin(Path(path)) as agent:
        agent.ring.append(json.dumps(line(1, "xid.reported", gpu=GPUS[0].uuid)).encode())
        agent.ring.append(json.dumps(line(2, "devices.advertised", 1, resource=WHOLE)).encode())
        assert await call("explain", "gpu", GPUS[0].pci, "--admin-socket", path) == 0
        told = capsys.readouterr().out
        assert "is healthy" in told
        assert "xid.reported" in told
        assert await call("explain", "resource", WHOLE, "--admin-socket", path) == 0
        told = capsys.readouterr().out.splitlines()
        assert ["xid.reported" in told[-2], "devices.advertised" in told[-1]] == [True, True], "the cause first"
        assert await call("explain", "id", GPUS[1].uuid, "--admin-socket", path) == 0
        assert "No event about it" in capsys.readouterr().out
        assert await call("explain", "id", "ü x", "--admin-socket", path) == 1
        assert await call("explain", "resource", "a/b", "--admin-socket", path) == 1
        assert "this node serves nvidia.com/gpu" in capsys.readouterr().err
    assert await call("explain", "gpu", "0", "--admin-socket", path) == 1


def test_lines_about_others_are_left_out_where_the_event_is_told_of_anyway():
    lines = [
        line(1, "gpu.added", gpu="A"),
        line(1, "gpu.added", gpu="B"),
        line(1, "plan.made"),
        line(2, "x.y", 1, gpu="B"),
    ]
    chains = Chains(lines)

    def shown(subject: str) -> list[str]:
        shows = partial(is_of_interest, subjects={subject})
        return list(
            chains.tree([("r1", 2)], lambda told: f"{told['event']} {told.get('gpu')}", effects=False, shows=shows)
        )

    assert shown("B") == ["gpu.added B", "plan.made None", "  x.y B"]
    assert shown("C") == ["plan.made None", "  x.y B"]


def test_a_resource_is_found_by_its_name_with_and_without_the_prefix():
    """As the config takes it."""
    whole = find_resource(document(READY), "nvidia.com/gpu")
    assert find_resource(document(READY), "gpu") == whole
    with pytest.raises(Unknown, match=r"no resource 'gp'; this node serves nvidia\.com/gpu"):
        find_resource(document(READY), "gp")
