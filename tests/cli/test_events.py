"""``events``: filters and chains over a file, a pipe, and a real admin socket."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from reactor.cli import main
from reactor.cli.chain import Chains
from reactor.cli.filters import Filter, read_age, stamp
from tests.status.test_admin import Admin, admin

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"


def line(seq: int, event: str, cause: int | None = None, *, run: str = "r1", **fields: object) -> dict[str, object]:
    told: dict[str, object] = {
        "v": 1,
        "ts": f"2026-11-30T09:{seq:02d}:00.000000Z",
        "level": "info",
        "event": event,
        "seq": seq,
        "run": run,
        "node": "n",
    }
    if cause is not None:
        told["cause"] = cause
    return {**told, "msg": f"{event} {seq}", **fields}


STORY = [
    line(1, "agent.started"),
    line(2, "gpu.added", 1, gpu=A, pci="0000:01:00.0", index=0),
    line(2, "gpu.added", 1, gpu=B, pci="0000:02:00.0", index=1),
    line(3, "xid.reported", gpu=B, pci="0000:02:00.0", index=1, level="warning"),
    line(3, "gpu.condemned", gpu=B, level="error"),
    line(4, "allocation.answered", gpus=[A]),
    line(5, "devices.advertised", 3, resource="nvidia.com/gpu"),
    line(6, "inventory.failed", 4, level="warning"),
    line(7, "log.emitted", 5),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text("".join(f"[pod/gpu-reactor-x] {json.dumps(each)}\n" for each in STORY) + "no line\n{broken\n[1]\n")
    return path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[int, str]]:
    assert main(["events", "-o", "json", *words]) == 0
    return [(told["seq"], told["event"]) for told in map(json.loads, capsys.readouterr().out.splitlines())]


@pytest.mark.parametrize(
    ("words", "seqs"),
    [
        ((), [1, 2, 2, 3, 3, 4, 5, 6, 7]),
        (("--event", "gpu.*"), [2, 2, 3]),
        (("--level", "warning"), [3, 3, 6]),
        (("--gpu", "1"), [2, 3, 3]),
        (("--gpu", A.lower()), [2, 4]),
        (("--gpu", "0000:02:00.0"), [2, 3]),
        (("--resource", "nvidia.com/gpu"), [5]),
        (("--event", "xid.*", "--gpu", "0"), []),
    ],
)
def test_lines_pass_that_match_all_that_is_asked(words, seqs, log: Path, capsys: pytest.CaptureFixture[str]):
    assert [seq for seq, _ in shown(capsys, *words, str(log))] == seqs


def test_since_counts_from_now():
    told = Filter(since=stamp(1_796_029_500.0))
    assert stamp(1_796_029_500.0) == "2026-11-30T09:05:00"
    assert [each["seq"] for each in STORY if told.passes(each)] == [5, 6, 7]
    assert (read_age("90s"), read_age("2h"), read_age("1d")) == (90, 7200, 86400)


@pytest.mark.parametrize("text", ["10", "m", "", "-5m", "1.5h", "10w", "٣m"])
def test_an_age_that_is_none_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["events", f"--since={text}", "-"])
    assert caught.value.code == 2
    assert "10m" in capsys.readouterr().err


def test_a_chain_is_a_tree_of_causes_and_effects(log: Path, capsys: pytest.CaptureFixture[str]):
    """OBS-01: the numbers answer why."""
    assert main(["events", "--cause", "5", str(log)]) == 0
    text = capsys.readouterr().out.splitlines()
    assert [(len(each) - len(each.lstrip()), each.split()[2]) for each in text] == [
        (0, "xid.reported"),
        (0, "gpu.condemned"),
        (2, "devices.advertised"),
        (4, "log.emitted"),
    ]


def test_the_newest_run_that_has_the_event_is_meant():
    chains = Chains([*STORY, line(1, "agent.started", run="r2"), line(2, "gpu.added", 1, run="r2")])
    assert chains.newest(2) == ("r2", 2)
    assert chains.newest(3) == ("r1", 3)


def test_a_cause_whose_lines_are_gone_is_named():
    chains = Chains([line(9, "gpu.added", 4)])
    assert next(chains.tree([("r1", 9)], str, effects=False)) == "(#4 led to this; its lines are no longer here)"


def test_an_event_that_is_not_there_is_said(log: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["events", "--cause", "99", str(log)]) == 1
    assert "no line of event #99" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["events", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_pipe_is_read(log: Path):
    command = [sys.executable, "-m", "reactor", "events", "--color", "never", "-"]
    done = subprocess.run(command, input=log.read_bytes(), capture_output=True, check=True, timeout=20)
    assert len(done.stdout.splitlines()) == len(STORY)
    assert b"gpu.condemned" in done.stdout


def test_the_schema_is_the_published_one(capsys: pytest.CaptureFixture[str]):
    assert main(["events", "--schema"]) == 0
    assert capsys.readouterr().out == (Path(__file__).parents[2] / "config" / "events.schema.json").read_text()


def test_following_a_file_is_wrong_usage(log: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["events", "-f", str(log)]) == 2


async def call(*words: str) -> int:
    return await trio.to_thread.run_sync(partial(main, words))


async def test_the_agent_is_asked_and_followed_until_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.sock"
    async with admin(path) as agent:
        fill(agent, 600)
        assert await call("events", "-o", "json", "--admin-socket", str(path)) == 0
        assert len(capsys.readouterr().out.splitlines()) == 600
        assert await call("events", "--gpu", "0", "--admin-socket", str(path)) == 0
    command = [sys.executable, "-m", "reactor", "events", "-f", "--event", "late", "--admin-socket", str(path)]
    async with admin(path) as agent:
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        agent.ring.append(json.dumps(line(1, "early")).encode())
        agent.ring.append(json.dumps(line(2, "late")).encode())
        with trio.fail_after(20):
            assert b"late" in await process.stdout.receive_some()
    with trio.fail_after(20):
        assert await process.wait() == 0
        await process.stdout.aclose()


def fill(agent: Admin, count: int) -> None:
    for seq in range(count):
        agent.ring.append(json.dumps(line(seq % 60, "x.y", gpu=A)).encode())


def test_without_an_agent_it_says_what_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["events", "--admin-socket", str(tmp_path / "none")]) == 1
    assert "is it running?" in capsys.readouterr().err
