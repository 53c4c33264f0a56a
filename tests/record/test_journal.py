"""The journal: whole, in pieces of a size, and no burden to the bus."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reactor.cli import main
from reactor.cli.replay import Replay
from reactor.events import AgentStarted, Event, Fact, SignalReceived, XidReported
from reactor.model.condition import WHOLE_GPU
from reactor.record.journal import Head, Journal, Recorded, read
from reactor.reducer import reduce
from reactor.state import State
from tests.status.node import GPUS, WALL


@dataclass
class World:
    """A bus that records into a journal, which stands before nothing."""

    path: Path
    limit: int = 1 << 20
    depth: int = 100
    state: State = field(default_factory=State)
    seq: int = 0
    failures: list[str] = field(default_factory=list)
    recovered: int = 0
    moved: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.journal = self.open()

    def open(self) -> Journal:
        return Journal(
            self.path, self, failed=self.fail, recovered=self.recover, limit=self.limit, depth=self.depth, retry=0.0
        )

    def record(self, event: Event, before: State, after: State) -> None:
        """The log."""

    def fail(self, text: str) -> None:
        self.failures.append(text)
        self.moved.set()

    def recover(self) -> None:
        self.recovered += 1
        self.moved.set()

    def publish(self, *facts: Fact) -> None:
        for fact in facts:
            self.seq += 1
            event = Event(seq=self.seq, cause=None, at=float(self.seq), wall=WALL, fact=fact)
            before, after = self.state, reduce(self.state, event)
            if after is not before:
                from reactor.model.value import replace

                after = replace(after, revision=self.seq)
            self.state = after
            self.journal.record(event, before, after)

    def close(self) -> None:
        self.journal.close(5)


STARTED = AgentStarted(version="1", run="r", boot="b")
XID = XidReported(gpu=GPUS[0].uuid, placement=WHOLE_GPU, xid=79)
HUP = SignalReceived(name="HUP")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal")


def records(path: Path) -> list[Head | Recorded]:
    return [read(line) for line in path.read_bytes().splitlines()]


def test_events_are_written_with_their_facts_and_verdicts(world: World):
    world.publish(STARTED, XID)
    world.close()
    head, first, second = records(world.path)
    assert isinstance(head, Head)
    assert head.state == State()
    assert isinstance(first, Recorded)
    assert isinstance(second, Recorded)
    assert (first.event.fact, second.event.fact) == (STARTED, XID)
    assert [told["event"] for told in second.told] == ["xid.reported", "gpu.condemned"]
    assert world.path.stat().st_mode & 0o777 == 0o600


def test_a_full_file_is_put_aside_and_each_replays_by_itself(tmp_path: Path):
    world = World(tmp_path / "journal", limit=6000)
    world.publish(STARTED, *(HUP for _ in range(30)), XID)
    world.close()
    aside = tmp_path / "journal.1"
    assert aside.exists()
    for path in (aside, world.path):
        if path.exists():
            head = records(path)[0]
            assert isinstance(head, Head)
            assert main(["replay", "--quiet", str(path)]) == 0
    assert aside.stat().st_size < 20_000


def test_what_does_not_fit_into_the_queue_is_counted_not_waited_for(tmp_path: Path):
    world = World(tmp_path / "journal", depth=0)
    world.publish(STARTED, HUP, HUP)
    world.journal._depth = 10
    world.publish(HUP)
    world.close()
    head, event = records(world.path)
    assert isinstance(head, Head)
    assert (head.lost, head.state.reloads) == (3, 2)
    assert "3 events came faster" in world.failures[0]
    assert world.recovered == 1
    assert isinstance(event, Recorded)


def test_a_file_that_cannot_be_written_is_told_of_once_and_tried_again(tmp_path: Path):
    world = World(tmp_path / "none" / "journal")
    world.publish(STARTED)
    assert world.moved.wait(5)
    assert "No such file" in world.failures[0]
    world.moved.clear()
    (tmp_path / "none").mkdir()
    world.publish(HUP)
    assert world.moved.wait(5)
    world.close()
    assert world.recovered == 1
    head, _ = records(world.path)
    assert isinstance(head, Head)
    assert head.lost == 1


def test_another_life_goes_on_in_the_same_file(world: World):
    world.publish(STARTED, HUP)
    world.close()
    world.state, world.seq, world.journal = State(), 0, world.open()
    world.publish(STARTED)
    world.close()
    assert [type(record) for record in records(world.path)] == [Head, Recorded, Recorded, Head, Recorded]
    assert main(["replay", "--quiet", str(world.path)]) == 0


@pytest.mark.parametrize("text", ["version: v1\n", '{"v":1,"event":"agent.started"}\n'])
def test_what_is_no_journal_is_told_of_once(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A config, or the event log itself."""
    (tmp_path / "log").write_text(text * 50)
    assert main(["replay", str(tmp_path / "log")]) == 1
    first, summary = capsys.readouterr().err.splitlines()
    assert first.endswith("(is it a journal, as run --journal FILE writes one?)")
    assert summary == "gpu-reactor replay: 0 events, 0 of them decided otherwise, 0 missing"
    assert main(["replay", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"gpu-reactor replay: {tmp_path}/none: No such file or directory\n"


def test_replay_prints_the_log_and_finds_other_verdicts(world: World, capsys: pytest.CaptureFixture[str]):
    world.publish(STARTED, XID)
    world.close()
    assert main(["replay", str(world.path)]) == 0
    told = capsys.readouterr()
    assert [line.split()[2] for line in told.out.splitlines()] == ["agent.started", "xid.reported", "gpu.condemned"]
    assert "2 events, 0 of them decided otherwise, 0 missing" in told.err
    world.path.write_bytes(world.path.read_bytes().replace(b'"decision":"condemned"', b'"decision":"recorded"'))
    assert main(["replay", "--quiet", str(world.path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "event #2 was told as" in told.err


@pytest.mark.parametrize("damage", [b"{", b"[]", b"{}", b'{"journal": 9}', b'{"journal": 1}', b'{"fact": {"$": "Xx"}}'])
def test_a_damaged_record_is_a_complaint(damage: bytes, world: World):
    world.publish(STARTED, HUP)
    world.close()
    replay = Replay(print_line=lambda line: None)
    head, *rest = world.path.read_bytes().splitlines()
    for data in (head, damage, *rest):
        replay.take(data)
    assert (replay.events, len(replay.complaints), replay.differences) == (2, 1, 0)


def test_no_journal_and_an_empty_one_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", str(tmp_path / "none")]) == 1
    (tmp_path / "empty").touch()
    assert main(["replay", str(tmp_path / "empty")]) == 1
    assert "holds no event" in capsys.readouterr().err
