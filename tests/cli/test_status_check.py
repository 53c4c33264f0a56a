"""``status --check``, ``-o wide`` and ``-w``."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from reactor.cli import main
from reactor.cli.table import render, troubles
from reactor.model.value import replace
from reactor.state import Fault, State
from reactor.status.describe import describe
from tests.status.node import GPUS, READY, SNAPSHOT, WALL, xid
from tests.status.test_admin import admin


def document(state: State):
    return json.loads(json.dumps(describe(state, SNAPSHOT)))


def test_a_good_node_has_no_troubles():
    assert troubles(document(READY)) == []


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (replace(READY, stopping=True), "not ready: the agent is stopping"),
        (replace(READY, conditions={GPUS[1].uuid: (xid(),)}), "GPU 1 unhealthy: XID 79: GPU has fallen off the bus"),
        (replace(READY, gpus=(), conditions={GPUS[1].uuid: (xid(),)}), f"GPU {GPUS[1].uuid} gone: XID 79"),
        (replace(READY, faults={"x.y": Fault(name="x.y", message="a\x1b[2J", since=WALL)}), "x.y: a?[2J"),
    ],
)
def test_what_is_not_well_is_said(state: State, told: str):
    assert any(one.startswith(told) for one in troubles(document(state)))


def test_wide_has_more_columns():
    text = render(document(READY), now=WALL, wide=True)
    assert "MINOR  MEMORY  NUMA  MIG       RECOVERY" in text
    assert "0      80GiB   0     disabled  -" in text
    assert "MINOR" not in render(document(READY), now=WALL)


async def call(*words: str) -> int:
    return await trio.to_thread.run_sync(partial(main, words))


async def test_check_is_one_line_and_a_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.sock"
    async with admin(path):
        assert await call("status", "--check", "--admin-socket", str(path)) == 0
    assert capsys.readouterr().out == "ok: 2 GPUs, 1 resources, nothing amiss\n"
    assert await call("status", "--check", "--admin-socket", str(path)) == 2
    assert capsys.readouterr().out.startswith("cannot tell: no agent at")


async def test_watching_shows_it_again_and_ends_with_the_agent(tmp_path: Path):
    path = tmp_path / "a.sock"
    command = [sys.executable, "-m", "reactor", "status", "-w", "--admin-socket", str(path)]
    with trio.fail_after(20):
        async with admin(path):
            process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout is not None
            seen = b""
            while seen.count(b"agent    ready") < 2:
                seen += await process.stdout.receive_some()
        assert await process.wait() == 1
        await process.stdout.aclose()
