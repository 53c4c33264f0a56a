"""Keeps a storm of lines short: the first ones whole, then a summary at each doubling and at the end of the minute.

Lines are counted by event name and by subject (GPU, resource, handler, source) within it. A subject shows its first
``burst`` lines, a name about ``WIDE`` lines of all its subjects, the minute about ``BUDGET``; what is beyond is counted
and summed up. It has no clock: time is that of the lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from reactor.record.catalogue import XidCoalesced
from reactor.record.line import Level, Line
from reactor.record.served import LogCoalesced

WINDOW = 60.0
WIDE = 24
BUDGET = 60
"""Lines of all events together in a minute. Beyond, only errors, the first warning of a subject and the first line of
an event are shown: what began is told, how often it came is summed up at the end of its minute, in one line an event.
"""


class _Tally(Struct, eq=False):
    """One subject of one event within its window, or (``sample`` without a subject) all of them."""

    sample: Line
    count: int = 0
    hidden: int = 0
    due: int = 0
    """The next summary is told at this count."""

    def summary(self, first_ts: str, *, whole: bool) -> Line:
        hidden, self.hidden = self.hidden, 0
        self.due = self.count * 2
        return _summary(self.sample, self.count, hidden, first_ts, whole=whole)


class _Window(Struct, eq=False):
    began: float
    first_ts: str
    all: _Tally
    shown: int = 0
    beyond: bool = False
    """Whether lines were hidden for the sake of the budget."""
    subjects: dict[tuple[str, ...], _Tally] = field(default_factory=dict)

    @property
    def wide(self) -> int:
        """A single subject gets its burst and its summaries."""
        return max(WIDE, self.all.sample.burst + 10)

    def end(self) -> Iterator[Line]:
        if self.beyond or self.shown >= self.wide:
            if self.all.hidden:
                yield self.all.summary(self.first_ts, whole=True)
            return
        for tally in self.subjects.values():
            if tally.hidden:
                yield tally.summary(self.first_ts, whole=False)


class Storm:
    """Decides which lines are shown. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        self._began = 0.0
        self._told = 0
        """Lines since then, summaries included."""
        self.hidden = 0
        """Lines that were not shown, since the start."""

    def admit(self, line: Line, *, at: float, ts: str) -> Iterator[Line]:
        """The line itself, a summary in its place, or nothing."""
        if at - self._began >= WINDOW:
            self._began, self._told = at, 0
        window = self._windows.get(line.event)
        if window is None:
            window = self._windows[line.event] = _Window(began=at, first_ts=ts, all=_Tally(sample=line))
        shown = False
        for told in self._within(window, line):
            shown = shown or told is line
            self._told += 1
            yield told
        self.hidden += not shown

    def _within(self, window: _Window, line: Line) -> Iterator[Line]:
        tally = window.subjects.setdefault(line.about, _Tally(sample=line, due=line.burst * 2))
        tally.count += 1
        window.all.count += 1
        if self._told >= BUDGET and not _weighs(line, window, tally):
            window.beyond = True
            tally.hidden += 1
            window.all.hidden += 1
        elif tally.count > line.burst and tally.count < tally.due:
            tally.hidden += 1
            window.all.hidden += 1
        elif window.shown < window.wide:
            window.shown += 1
            if tally.count > line.burst:
                tally.hidden += 1
                yield tally.summary(window.first_ts, whole=False)
            else:
                yield line
        else:
            window.all.hidden += 1
            if window.all.due == 0:
                window.all.due = window.all.count * 2
            elif window.all.count >= window.all.due:
                yield window.all.summary(window.first_ts, whole=True)

    def passed(self, at: float) -> Iterator[Line]:
        """Summaries of the windows that are over."""
        for name in [name for name, window in self._windows.items() if at - window.began >= WINDOW]:
            yield from self._windows.pop(name).end()

    def close(self) -> Iterator[Line]:
        """Summaries of all windows, for the end of the log."""
        yield from self.passed(float("inf"))


def _weighs(line: Line, window: _Window, tally: _Tally) -> bool:
    """Whether a line is worth more than the budget."""
    first = tally if line.level is Level.WARNING else window.all
    return line.level is Level.ERROR or first.count == 1


def _summary(sample: Line, count: int, hidden: int, first_ts: str, *, whole: bool) -> Line:
    subject = {} if whole else {name: value for name, value in zip(sample.subject, sample.about, strict=True) if value}
    of = "of all" if whole else " ".join(subject.values())
    told = f"{count} times {sample.event} {of}".rstrip() + f", {hidden} not shown"
    if sample.event == "xid.reported":
        gpu = subject.get("gpu", "")
        return XidCoalesced(
            gpu=gpu, count=count, hidden=hidden, first_ts=first_ts, msg=told, synthetic=sample.synthetic
        )
    return LogCoalesced(
        level=sample.level,
        of=sample.event,
        gpu=subject.get("gpu", ""),
        resource=subject.get("resource", ""),
        handler=subject.get("handler", ""),
        lane=subject.get("lane", ""),
        source=subject.get("source", ""),
        logger=subject.get("logger", ""),
        count=count,
        hidden=hidden,
        first_ts=first_ts,
        msg=told,
        synthetic=sample.synthetic,
    )
