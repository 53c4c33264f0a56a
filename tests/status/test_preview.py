"""What ``diff`` says before a config is rolled out."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import trio

from reactor import view
from reactor.cli import main
from reactor.cli.diff import tell, verdict
from reactor.config import Accepted, parse
from reactor.model.gpu import MigMode
from reactor.model.ids import device_id
from reactor.model.value import replace
from reactor.state import Books, State
from reactor.status.document import PreviewDoc
from reactor.status.preview import preview
from tests.status.node import GPUS, READY, WALL, WHOLE, hold, holding
from tests.status.test_admin import admin

NODE = replace(READY, config=replace(READY.config, judged=True), books=Books(checkpoint_known=True))
SAME = "version: v1\n"
SHARED = """\
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""


def look(text: str, state: State = NODE) -> PreviewDoc:
    accepted = parse(text.encode(), path="c.yaml")
    assert isinstance(accepted, Accepted), accepted
    return preview(state, view.snapshot(state), accepted, at=10.0, wall=WALL)


def test_the_config_in_force_changes_nothing():
    found = look(SAME)
    assert (found["resources"], found["gpus"], found["waits"], found["impossible"]) == ([], [], [], [])
    assert verdict({**found, "changes": []}) == 0
    assert list(tell({**found, "changes": []})) == ["nothing would change on this node"]


def test_sharing_says_what_each_gpu_becomes_and_for_which_pod_it_waits():
    found = look(SHARED, holding(NODE, hold(GPUS[0])))
    (resource,) = found["resources"]
    assert resource["before"] == {"healthy": 2, "unhealthy": 0}
    assert resource["after"] == {"healthy": 4, "unhealthy": 6}
    assert (resource["added"], resource["removed"]) == (8, 0), "held and just listed ids stay until they are free"
    assert [(gpu["index"], gpu["before"], gpu["after"]) for gpu in found["gpus"]] == [
        (0, WHOLE, f"{WHOLE} x4"),
        (1, WHOLE, f"{WHOLE} x4"),
    ]
    assert [(pod["pod"], pod["index"], pod["held"]) for pod in found["waits"]] == [("default/a-pod", 0, "whole")]
    assert found["disturbs"] == []
    told = list(tell(found))
    assert told[-1] == "disturbs 0 running pods; waits for 1 running pod to end"
    assert "  waits for default/a-pod, which holds GPU 0 whole as nvidia.com/gpu" in told
    assert verdict(found) == 1


def test_holds_allow_disturbs_the_pod():
    found = look(SHARED + "holds: allow\n", holding(NODE, hold(GPUS[0])))
    assert found["waits"] == []
    assert [pod["pod"] for pod in found["disturbs"]] == ["default/a-pod"]
    assert list(tell(found))[-1] == "disturbs 1 running pod"


def test_nothing_of_the_live_state_is_changed():
    state = holding(NODE, hold(GPUS[0]))
    before = replace(state)
    look(SHARED, state)
    assert state == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SHARED.replace("4", "60000"), "replicas fit"),
        ("version: v1\nflags: {migStrategy: mixed}\n", "GPU 0 would not be listed: MIG is enabled"),
        ("version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n", "GPU 1 would not"),
    ],
)
def test_what_this_node_cannot_do_is_a_code_of_its_own(text: str, why: str):
    found = look(text, replace(NODE, gpus=(replace(GPUS[0], mig=MigMode.ENABLED), GPUS[1])))
    assert any(why in one for one in found["impossible"]), found
    assert verdict(found) == 3


async def call(*words: str) -> int:
    return await trio.to_thread.run_sync(partial(main, words))


async def test_diff_asks_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    socket = str(tmp_path / "a.sock")
    file = tmp_path / "c.yaml"
    async with admin(Path(socket)) as agent:
        await trio.Path(file).write_text(SHARED)
        assert await call("diff", "--admin-socket", socket, str(file)) == 1
        assert f"GPU 1 ({GPUS[1].product}): nvidia.com/gpu -> nvidia.com/gpu x4" in capsys.readouterr().out
        assert await call("diff", "-o", "json", "--admin-socket", socket, str(file)) == 1
        assert json.loads(capsys.readouterr().out)["v"] == 1
        await trio.Path(file).write_text("version: v1\nflgs: {}\n")
        assert await call("diff", "--admin-socket", socket, str(file)) == 2
        told = capsys.readouterr()
        assert told.out.startswith(f"{file}:2:1: flgs: ")
        assert "gpu-reactor check" in told.err
        await trio.Path(file).write_text("#" * 70_000 + "\n" + SAME)
        assert await call("diff", "--admin-socket", socket, str(file)) in (0, 1), "as large as a config may be"
        assert agent.facts == []
    assert await call("diff", "--admin-socket", socket, str(file)) == 2
    assert await call("diff", "--admin-socket", socket, str(tmp_path / "none")) == 2
    assert "No such file" in capsys.readouterr().err


async def test_one_id_is_described(tmp_path: Path):
    path = tmp_path / "a.sock"
    async with admin(path) as agent:
        answer = await agent.ask(f"GET /debug/device?id={GPUS[0].uuid} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        document = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert document["listed"] == [{"resource": WHOLE, "healthy": True, "reason": ""}]
        assert document["planned"] == [WHOLE]
        answer = await agent.ask(
            f"GET /debug/device?id={device_id(GPUS[0].uuid, 7)} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        document = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert (document["share"], document["listed"], document["planned"]) == (7, [], [])
