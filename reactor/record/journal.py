"""The journal: every event with its fact and what was told of it, whole, for ``replay``.

A file is JSON, one record a line. It begins with a head that holds the state before the first event, so that each file
replays by itself; a head also follows where events were lost (the disk was full, or it could not keep up), with their
number. The bus hands over immutable values and waits for nothing: a thread works out the lines and writes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from reactor import events
from reactor.events import Event, Fact
from reactor.record.codec import NAME, Unreadable, from_plain, to_plain
from reactor.record.line import Line
from reactor.record.narrate import lines
from reactor.state import State

VERSION = 1
LIMIT = 64 << 20
"""Bytes of a file; then it becomes FILE.1, and the FILE.1 before it goes."""
DEPTH = 16384
"""Events that may wait to be written."""
RETRY = 30.0


class Log(Protocol):
    def record(self, event: Event, before: State, after: State) -> None: ...


@dataclass(frozen=True, slots=True)
class _Entry:
    event: Event
    before: State
    after: State
    lost: int
    """Events lost before this one."""


class Journal:
    """Stands before the log as the bus's recorder. ``failed`` (with what went wrong) and ``recovered`` are called in
    the journal's thread.
    """

    def __init__(
        self,
        path: Path,
        log: Log,
        *,
        failed: Callable[[str], None],
        recovered: Callable[[], None],
        limit: int = LIMIT,
        depth: int = DEPTH,
        retry: float = RETRY,
    ) -> None:
        self._log = log
        self._depth = depth
        self._queue: deque[_Entry] = deque()
        self._lost = 0
        self._closing = False
        self._changed = threading.Condition()
        self._failed = failed
        self._file = _File(path, limit, retry, failed, recovered)
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def record(self, event: Event, before: State, after: State) -> None:
        with self._changed:
            if len(self._queue) < self._depth:
                self._queue.append(_Entry(event, before, after, self._lost))
                self._lost = 0
                self._changed.notify()
            else:
                self._lost += 1
        self._log.record(event, before, after)

    def close(self, timeout: float) -> None:
        """Write what waits, for at most so many seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while (entry := self._take()) is not None:
                self._file.write(entry)
        except Exception as exc:  # noqa: BLE001 - a boundary: what cannot be kept must not end the agent, nor go unsaid
            self._failed(f"the journal has ended: {type(exc).__name__}: {exc}")
        self._file.close()

    def _take(self) -> _Entry | None:
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                self._changed.wait()
            return self._queue.popleft()


class _File:
    def __init__(
        self, path: Path, limit: int, retry: float, failed: Callable[[str], None], recovered: Callable[[], None]
    ) -> None:
        self._path = path
        self._limit = limit
        self._retry = retry
        self._failed = failed
        self._recovered = recovered
        self._descriptor: int | None = None
        self._lost = 0
        self._broken_at: float | None = None

    def write(self, entry: _Entry) -> None:
        self._lost += entry.lost
        if entry.lost:
            self._failed(f"{entry.lost} events came faster than {self._path} takes them, and are missing from it")
        if self._broken_at is not None and time.monotonic() < self._broken_at + self._retry:
            self._lost += 1
            return
        try:
            self._append(entry)
        except OSError as exc:
            self._lost += 1
            self._broken_at = time.monotonic()
            self.close()
            self._failed(f"writing {self._path}: {exc.strerror}; events are missing from the journal until it can be")
            return
        if entry.lost or self._broken_at is not None:
            self._broken_at = None
            self._recovered()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, entry: _Entry) -> None:
        records = [event_record(entry.event, entry.before, entry.after)]
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            records.insert(0, head_record(entry.before, self._lost))
        elif self._lost:
            records.insert(0, head_record(entry.before, self._lost))
        size = os.fstat(self._descriptor).st_size
        data = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        try:
            _write(self._descriptor, data)
        except OSError:
            os.ftruncate(self._descriptor, size)  # half a record is none
            raise
        self._lost = 0
        if size + len(data) > self._limit:
            self.close()
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def head_record(state: State, lost: int) -> Mapping[str, object]:
    return {"journal": VERSION, "version": state.version, "run": state.run, "lost": lost, "state": to_plain(state)}


def event_record(event: Event, before: State, after: State) -> Mapping[str, object]:
    return {
        "seq": event.seq,
        "cause": event.cause,
        "at": event.at,
        "wall": event.wall,
        "fact": to_plain(event.fact),
        "told": verdicts(lines(event, before, after)),
    }


def verdicts(told: tuple[Line, ...]) -> list[object]:
    """What was decided, as it was told: the lines without their sentence, which is no part of the promise."""
    return [{name: value for name, value in msgspec.to_builtins(line).items() if name != "msg"} for line in told]


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The state from which the events after it go on."""

    state: State
    lost: int
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    event: Event
    told: list[object]


_FACTS = {kind.__name__: kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Fact)}


def read(data: bytes) -> Head | Recorded:
    """One record. Unreadable says why it is none."""
    try:
        record: dict[str, object] = msgspec.json.decode(data, type=dict[str, object])
    except msgspec.MsgspecError as exc:
        raise Unreadable(str(exc)) from exc
    return _read_head(record) if "journal" in record else _read_event(record)


def _read_head(record: Mapping[str, object]) -> Head:
    if record["journal"] != VERSION:
        raise Unreadable(f"the journal is of version {record['journal']}, this command reads {VERSION}")
    state, lost = from_plain(record.get("state"), State), record.get("lost", 0)
    if not isinstance(state, State) or not isinstance(lost, int):
        raise Unreadable("its head holds no state")
    return Head(state=state, lost=lost, run=str(record.get("run", "")))


class _Record(msgspec.Struct):
    seq: int
    cause: int | None
    at: float
    wall: float
    fact: dict[str, object]
    told: list[object]


def _read_event(record: Mapping[str, object]) -> Recorded:
    try:
        found = msgspec.convert(record, _Record)
    except msgspec.ValidationError as exc:
        raise Unreadable(str(exc)) from exc
    kind = _FACTS.get(str(found.fact.get(NAME)))
    if kind is None:
        raise Unreadable(f"there is no fact {found.fact.get(NAME)!r}")
    fact = from_plain(found.fact, kind)
    if not isinstance(fact, Fact):
        raise Unreadable(f"there is no fact {fact!r}")
    event = Event(seq=found.seq, cause=found.cause, at=found.at, wall=found.wall, fact=fact)
    return Recorded(event=event, told=found.told)
