"""The thread that writes lines, behind a bounded queue: a reader that stalls blocks nobody but this thread.

A log pipe holds about 160 lines; then ``write`` waits for its reader, perhaps for ever. When the queue is full the
oldest debug or info line goes first, the oldest of the rest only if there is no such line; what went is counted.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque

DEPTH = 4096


class LogWriter:
    """A sink for ``Recorder`` that writes to a descriptor. Safe for any thread, waits for nothing."""

    def __init__(self, descriptor: int, *, depth: int = DEPTH) -> None:
        self._descriptor = descriptor
        self._depth = depth
        self._loud: deque[tuple[int, bytes]] = deque()
        self._quiet: deque[tuple[int, bytes]] = deque()
        self._number = 0
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        # A daemon: a reader that never reads again must not keep the process from its end.
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    def __call__(self, line: bytes) -> None:
        with self._changed:
            self._number += 1
            (self._quiet if _is_quiet(line) else self._loud).append((self._number, line))
            if len(self._quiet) + len(self._loud) > self._depth:
                (self._quiet or self._loud).popleft()
                self._dropped += 1
            self._changed.notify()

    def dropped(self) -> int:
        """Lines lost since the start."""
        return self._dropped

    def close(self, timeout: float) -> bool:
        """Write what is queued, for at most ``timeout`` seconds; whether all was written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while lines := self._take():
            self._write(b"".join(lines))

    def _take(self) -> list[bytes]:
        """The next lines in their order, as many as a pipe takes at once; none: the end."""
        with self._changed:
            while not (self._quiet or self._loud):
                if self._closing:
                    return []
                self._changed.wait()
            taken: list[bytes] = []
            while (self._quiet or self._loud) and len(taken) < 64:
                queue = self._quiet if _first(self._quiet) < _first(self._loud) else self._loud
                taken.append(queue.popleft()[1])
            return taken

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:
                # Nobody reads any more, or the disk is full. There is no better place to say so.
                with self._changed:
                    self._dropped += data.count(b"\n")
                return


def _first(queue: deque[tuple[int, bytes]]) -> float:
    return queue[0][0] if queue else float("inf")


def _is_quiet(line: bytes) -> bool:
    head = line[:96]
    return b'"level":"info"' in head or b'"level":"debug"' in head
