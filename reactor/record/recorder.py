"""Records every event of the bus: tells it in lines, keeps storms short, encodes, hands the bytes to a sink.

Runs within ``publish``: it waits for nothing. A bug in here ends the process, as one in the reducer does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from reactor.events import Event
from reactor.record.encode import Stamp, encode, timestamp
from reactor.record.line import Level, Line
from reactor.record.narrate import lines
from reactor.record.served import LogDropped, LogEmitted
from reactor.record.storm import Storm
from reactor.state import State

Sink = Callable[[bytes], None]


class Recorder:
    """What the bus calls for each event.

    ``sink`` takes whole lines, newline included, from any thread; ``dropped`` says how many the sink has lost.
    ``run`` names this life of the agent until the state knows it.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        node: str,
        run: str = "",
        threshold: Level = Level.INFO,
        dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self._sink = sink
        self._node = node
        self._run = run
        self._threshold = threshold.rank
        self._dropped = dropped
        self._dropped_told = 0
        self._storm = Storm()
        self._at = 0.0
        self._stamp = Stamp(seq=0, cause=None, ts=timestamp(0.0), run=run, node=node)
        # Only records of ``logging`` come from other threads than the bus.
        self._lock = threading.Lock()

    def lost(self) -> Mapping[str, int]:
        """Lines that nobody sees, by why, since the start."""
        return {"storm": self._storm.hidden, "backpressure": self._dropped()}

    def record(self, event: Event, before: State, after: State) -> None:
        told = lines(event, before, after)
        with self._lock:
            self._at = event.at
            self._stamp = Stamp(
                seq=event.seq, cause=event.cause, ts=timestamp(event.wall), run=after.run or self._run, node=self._node
            )
            self._write(self._storm.passed(event.at))
            self._report_dropped()
            self._admit(told, self._stamp)

    def emit(self, line: Line, *, wall: float) -> None:
        """A line that belongs to no event; it carries the number of the newest one. From any thread."""
        with self._lock:
            newest = self._stamp
            stamp = Stamp(seq=newest.seq, cause=None, ts=timestamp(wall), run=newest.run, node=self._node)
            self._admit((line,), stamp)

    def flush(self) -> None:
        """Tell what storms have hidden and what was dropped: the log ends here."""
        with self._lock:
            self._write(self._storm.close())
            self._report_dropped()

    def _admit(self, told: Iterable[Line], stamp: Stamp) -> None:
        for line in told:
            if line.level.rank >= self._threshold:
                for shown in self._storm.admit(line, at=self._at, ts=stamp.ts):
                    self._sink(encode(shown, stamp))

    def _write(self, told: Iterable[Line]) -> None:
        for line in told:
            self._sink(encode(line, self._stamp))

    def _report_dropped(self) -> None:
        total = self._dropped()
        if total > self._dropped_told:
            count, self._dropped_told = total - self._dropped_told, total
            self._write([LogDropped(count=count, total=total, msg=f"{count} lines of this log were dropped")])


_LEVELS = ((logging.ERROR, Level.ERROR), (logging.WARNING, Level.WARNING), (logging.INFO, Level.INFO))


class LogHandler(logging.Handler):
    """What libraries log becomes ``log.emitted`` lines."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        level = next((ours for theirs, ours in _LEVELS if record.levelno >= theirs), Level.DEBUG)
        error = repr(record.exc_info[1]) if record.exc_info and record.exc_info[1] else ""
        try:
            told = record.getMessage()
        except (TypeError, ValueError):  # a library's own slip in its arguments must not come back to it from here
            told = str(record.msg)
        line = LogEmitted(level=level, logger=record.name, error=error, msg=told)
        self._recorder.emit(line, wall=record.created)
