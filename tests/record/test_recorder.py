"""Levels, records of libraries, and how a line looks to people."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from reactor.events import AgentWaiting, DeadlinePassed, WorkerStarted
from reactor.record.line import Level
from reactor.record.recorder import LogHandler, Recorder
from reactor.record.render import render, wants_colour
from reactor.state import State
from tests.loglines import LogLines
from tests.record.world import Teller


@pytest.fixture
def library(teller: Teller) -> Iterator[logging.Logger]:
    logger = logging.getLogger("tests.some.library")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    handler = LogHandler(teller.recorder)
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


def test_lines_below_the_threshold_are_not_written(log: LogLines) -> None:
    teller = Teller(Recorder(log, node="node-1"))
    teller.tell(DeadlinePassed(name="resync"))
    teller.tell(WorkerStarted(pid=1))
    assert log.events == ["worker.started"]


def test_what_a_library_logs_is_a_line_at_its_level(teller: Teller, log: LogLines, library: logging.Logger) -> None:
    teller.tell(WorkerStarted(pid=1))
    library.warning("connection %s lost", 3)
    try:
        raise ValueError("odd")
    except ValueError:
        library.exception("that failed")
    library.debug("detail")
    told = log.of("log.emitted")
    assert [(line["level"], line["msg"]) for line in told] == [
        ("warning", "connection 3 lost"),
        ("error", "that failed"),
        ("debug", "detail"),
    ]
    assert (told[1]["error"], told[1]["logger"], told[1]["seq"]) == ("ValueError('odd')", "tests.some.library", 1)


def test_a_library_that_logs_wrongly_gets_no_error_back(log: LogLines, teller: Teller) -> None:
    record = logging.LogRecord("lib", logging.WARNING, __file__, 1, "%d of %d", ("one",), None)
    LogHandler(teller.recorder).handle(record)
    assert [line["msg"] for line in log] == ["%d of %d"]


def test_lines_before_the_agent_has_started_name_the_run(log: LogLines) -> None:
    recorder = Recorder(log, node="node-1", run="r9")
    Teller(recorder, state=State()).tell(AgentWaiting(reason="another agent"))
    Teller(recorder, state=State(run="r10")).tell(WorkerStarted(pid=1))
    assert [line["run"] for line in log] == ["r9", "r10"]


def test_a_library_that_logs_without_end_is_summed_up(teller: Teller, log: LogLines, library: logging.Logger) -> None:
    for _ in range(64):
        library.warning("again")
    assert len(log) == 8
    assert log.lines[-1]["logger"] == "tests.some.library"


def test_a_line_for_people_has_time_level_event_sentence_and_cause() -> None:
    line = {
        "ts": "2026-11-30T09:12:44.031207Z",
        "level": "error",
        "event": "gpu.lost",
        "seq": 12,
        "cause": 11,
        "synthetic": True,
        "msg": "GPU 0 cannot\x1b[2J be reached",
    }
    plain = "09:12:44.031 E gpu.lost               GPU 0 cannot\N{REPLACEMENT CHARACTER}[2J be reached"
    assert render(line) == plain + " [synthetic] (#12 <- #11)"
    assert "\x1b[31mE\x1b[0m" in render(line, colour=True)
    assert render(json.loads("{}")) == f" ? {'':<22}  (#None)"


@pytest.mark.parametrize(
    ("environment", "terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(environment: dict[str, str], terminal: bool, wanted: bool) -> None:
    assert wants_colour(environment, terminal=terminal) is wanted


def test_levels_are_ordered() -> None:
    assert sorted(Level, key=lambda level: level.rank) == [Level.DEBUG, Level.INFO, Level.WARNING, Level.ERROR]
