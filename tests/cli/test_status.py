"""``status`` and ``inject`` against a real admin socket; the table against a snapshot."""

from __future__ import annotations

import json
import socket
import threading
from functools import partial
from pathlib import Path

import pytest
import trio

from reactor.cli import main
from reactor.cli.client import NoAgent, ask
from reactor.cli.table import VERSION, render
from reactor.model.condition import FaultClass
from reactor.model.config import Config, ConfigProblem, Unserved
from reactor.model.snapshot import Snapshot
from reactor.model.value import replace
from reactor.plan import EMPTY
from reactor.state import Fault, State
from reactor.status import document
from reactor.status.describe import describe
from tests.status.node import (
    GPUS,
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
from tests.status.test_admin import admin


def table(state: State, shown=SNAPSHOT) -> str:
    return render(json.loads(json.dumps(describe(state, shown))), now=WALL)


HEALTHY = f"""\
agent    ready, version 1.2.3, up 10m
driver   ready: 580.95.05, CUDA 13.0
config   /etc/gpu-reactor/config.yaml, for 60s (sha256-of-it)
kubelet  up

RESOURCE        HEALTHY  UNHEALTHY  HELD  LEAVING  KUBELET
nvidia.com/gpu  2        0          1     0        up to date

GPU  PRODUCT                PCI           RESOURCE        HEALTH   HELD BY        UUID
0    NVIDIA H100 80GB HBM3  0000:01:00.0  nvidia.com/gpu  healthy  default/a-pod  {GPUS[0].uuid}
1    NVIDIA H100 80GB HBM3  0000:02:00.0  nvidia.com/gpu  healthy  -              {GPUS[1].uuid}
"""


def test_a_healthy_node_is_a_short_table():
    assert table(holding(READY, hold(GPUS[0]))) == HEALTHY


def test_a_troubled_node_says_why():
    config = replace(
        READY.config,
        config=Config(unserved=(Unserved(path="flags.gdsEnabled", message="GDS is not set up"),)),
        rejected_path="c.yaml",
        problems=(ConfigProblem(line=3, column=5, path="flags.x", message="unknown key"),),
    )
    state = holding(
        replace(
            READY,
            simulated=True,
            config=config,
            conditions={GPUS[0].uuid: (xid(count=3, synthetic=True),)},
            faults={"source.probes": Fault(name="source.probes", message="port taken", since=WALL - 7300, count=4)},
            books=replace(READY.books, checkpoint_error="checkpoint unreadable"),
        ),
        *(hold(GPUS[0], share, pod=pod) for share, pod in enumerate("abcd")),
        hold(GPUS[1]),
        foreign_hold(),
    )
    text = table(state, snapshot(listed(GPUS[0], reason="XID 79"), listed(GPUS[1]), revision=6))
    for line in (
        "*** SIMULATED NVML: no GPU below is real ***",
        "         REJECTED, what was in force stays:",
        "           c.yaml:3:5: flags.x: unknown key",
        "         not served yet: flags.gdsEnabled: GDS is not set up",
        "         checkpoint unreadable",
        "nvidia.com/gpu  1        1          6     0        list on its way",
        "  nvidia.com/gpu: 1 x XID 79",
        "  GPU 0: XID 79: GPU has fallen off the bus (3 times, INJECTED)",
        "nvidia.com/gpu: nvidia0 of another plugin, held by a pod not known yet",
        "source.probes  2h   4      port taken",
    ):
        assert line in text.splitlines()
    assert "UNHEALTHY  default/a, default/b, default/c and 1 more" in text


def test_an_agent_that_serves_nothing_says_so():
    text = table(State(), Snapshot())
    assert "NOT READY" in text
    assert "config   none in force: nothing is served" in text
    assert "kubelet  away: not looked for yet" in text
    assert "No resource is served." in text
    assert "No GPU." in text


def test_a_gpu_that_is_gone_and_one_that_is_not_listed_are_explained():
    unlisted = replace(EMPTY, unlisted={GPUS[0].uuid: "no pattern matches it"})
    deaf = replace(GPUS[0], monitored=False)
    state = replace(
        READY,
        gpus=(deaf,),
        plan=unlisted,
        conditions={GPUS[1].uuid: (xid(fault=FaultClass.HARDWARE, needs_person=True),)},
    )
    text = table(state, snapshot())
    assert "  GPU 0: not listed: no pattern matches it" in text
    assert "  GPU 0: its XIDs are not seen" in text
    assert "GONE" in text
    assert f"  {GPUS[1].uuid}: XID 79: GPU has fallen off the bus (a person must look at it)" in text


@pytest.mark.parametrize(
    ("changes", "standing"),
    [({"registered": None}, "NOT REGISTERED"), ({"streams": frozenset()}, "NOT WATCHED")],
)
def test_a_resource_the_kubelet_does_not_follow_stands_out(changes, standing: str):
    plugins = {WHOLE: replace(READY.kubelet.plugins[WHOLE], **changes)}
    assert standing in table(replace(READY, kubelet=replace(READY.kubelet, plugins=plugins)))


def test_what_a_terminal_would_obey_is_not_printed():
    fault = Fault(name="x", message="\x1b[2Jgone", since=WALL)
    assert "?[2Jgone" in table(replace(READY, faults={"x": fault}))


def test_both_sides_speak_of_the_same_version():
    assert document.VERSION == VERSION


async def call(*words: str) -> int:
    return await trio.to_thread.run_sync(partial(main, words))


async def test_status_shows_a_running_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.sock"
    async with admin(path):
        assert await call("status", "--admin-socket", str(path)) == 0
        assert "nvidia.com/gpu  2 " in capsys.readouterr().out
        assert await call("status", "-o", "json", "--admin-socket", str(path)) == 0
        assert json.loads(capsys.readouterr().out)["v"] == 1


async def test_inject_publishes_or_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """HLT-29"""
    path = tmp_path / "a.sock"
    async with admin(path) as agent:
        assert await call("inject", "--admin-socket", str(path), "xid=79", "gpu=0") == 0
        assert "XidReported" in capsys.readouterr().out
        assert len(agent.facts) == 1
        assert await call("inject", "--admin-socket", str(path), "xid=79", "gpu=9") == 1
        assert "no GPU '9'" in capsys.readouterr().err
    async with admin(path, allow=False):
        assert await call("inject", "--admin-socket", str(path), "rescan") == 1
        assert "--allow-inject" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("status",), ("inject", "rescan")])
def test_without_an_agent_a_client_says_what_to_check(words, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.sock"
    assert main([*words, "--admin-socket", str(path)]) == 1
    assert f"no agent at {path}: is it running? If it has another --admin-socket" in capsys.readouterr().err
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert main([*words, "--admin-socket", str(path)]) == 1
    assert "left over from one that no longer runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"", "is not an agent, or it went away"),
        (b"SSH-2.0\r\n\r\n", "is not an agent"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "was cut short"),
    ],
)
def test_an_answer_that_is_none_is_told_from_one(answer: bytes, complaint: str, tmp_path: Path):
    path = str(tmp_path / "a.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        thread = threading.Thread(target=answer_once, args=(server, answer))
        thread.start()
        with pytest.raises(NoAgent, match=complaint):
            ask(path, "GET", "/")
        thread.join()


def answer_once(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(answer)


def test_a_document_of_another_version_is_not_guessed_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(tmp_path / "a.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        body = b'{"v": 2}'
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        thread = threading.Thread(target=answer_once, args=(server, answer))
        thread.start()
        assert main(["status", "--admin-socket", path]) == 1
        thread.join()
    assert "of version 2, this command reads 1: use -o json" in capsys.readouterr().err
