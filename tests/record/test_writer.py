"""The writer waits for nobody, and loses the least when nobody reads."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from reactor.record.recorder import Recorder
from reactor.record.writer import LogWriter
from tests.loglines import LogLines
from tests.record.world import Teller

F_SETPIPE_SZ = 1031


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    fcntl.fcntl(write, F_SETPIPE_SZ, 4096)
    yield read, write
    for descriptor in (read, write):
        with suppress(OSError):
            os.close(descriptor)


def line(number: int, level: str = "info") -> bytes:
    return f'{{"v":1,"ts":"t","level":"{level}","n":{number}}}\n'.encode()


def drain(read: int, write: int, writer: LogWriter) -> list[bytes]:
    """Read to the end while the writer closes."""
    got = bytearray()

    def reading() -> None:
        while data := os.read(read, 65536):
            got.extend(data)

    reader = threading.Thread(target=reading)
    reader.start()
    assert writer.close(5.0)
    os.close(write)
    reader.join(5.0)
    return bytes(got).splitlines(keepends=True)


def test_lines_come_out_in_their_order(pipe: tuple[int, int]) -> None:
    read, write = pipe
    writer = LogWriter(write)
    lines = [line(number, ("debug", "error", "info")[number % 3]) for number in range(500)]
    for each in lines:
        writer(each)
    assert drain(read, write, writer) == lines


def test_a_reader_that_stalls_costs_quiet_lines_first_and_they_are_counted(pipe: tuple[int, int]) -> None:
    read, write = pipe
    writer = LogWriter(write, depth=100)
    for number in range(3000):
        writer(line(number))
    for number in range(3000, 3060):
        writer(line(number, "error"))
    assert writer.dropped() > 2000
    got = drain(read, write, writer)
    assert len(got) + writer.dropped() == 3060
    assert got[-60:] == [line(number, "error") for number in range(3000, 3060)]


def test_when_there_are_only_loud_lines_the_oldest_go(pipe: tuple[int, int]) -> None:
    read, write = pipe
    writer = LogWriter(write, depth=10)
    for number in range(2000):
        writer(line(number, "error"))
    assert drain(read, write, writer)[-10:] == [line(number, "error") for number in range(1990, 2000)]


def test_a_stuck_reader_does_not_hold_up_the_end(pipe: tuple[int, int]) -> None:
    _, write = pipe
    writer = LogWriter(write)
    for number in range(1000):
        writer(line(number))
    assert not writer.close(0.01)


def test_a_reader_that_is_gone_ends_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    writer = LogWriter(write)
    writer(line(1))
    assert writer.close(5.0)
    os.close(write)
    assert writer.dropped() == 1


def test_a_descriptor_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.set_blocking(write, False)
    writer = LogWriter(write)
    lines = [line(number) for number in range(1000)]
    for each in lines:
        writer(each)
    assert drain(read, write, writer) == lines


def test_what_was_dropped_is_told_with_the_next_event(log: LogLines) -> None:
    from reactor.events import WorkerStarted

    lost = 0
    teller = Teller(Recorder(log, node="node-1", dropped=lambda: lost))
    teller.tell(WorkerStarted(pid=1))
    lost = 5
    teller.tell(WorkerStarted(pid=2))
    teller.tell(WorkerStarted(pid=3))
    lost = 7
    teller.recorder.flush()
    assert [(told["count"], told["total"]) for told in log.of("log.dropped")] == [(5, 5), (2, 7)]
