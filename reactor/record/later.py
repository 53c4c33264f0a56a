"""Telling comes after acting: what happened is put into lines once those who act on it have had their turn.

An event is immutable and so are the states on both sides of it, so a line that is made 2 ms later says the same. Made
at once it would delay the list to the kubelet by as long as it takes, and hold up the thread that sends it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import trio

from reactor.events import Event
from reactor.state import State

PAUSE = 0.002


class Records(Protocol):
    def record(self, event: Event, before: State, after: State) -> None: ...


class Later:
    """Hands events on in their order, a moment after they came; the rest of them at the end of its ``with`` block."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._waiting: deque[tuple[Event, State, State]] = deque()
        self._woken = trio.Event()

    def __enter__(self) -> Later:
        return self

    def __exit__(self, *exc: object) -> None:
        self.flush()

    def record(self, event: Event, before: State, after: State) -> None:
        self._waiting.append((event, before, after))
        self._woken.set()

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            await trio.sleep(PAUSE)
            self._woken = trio.Event()
            self.flush()

    def flush(self) -> None:
        while self._waiting:
            self._records.record(*self._waiting.popleft())
