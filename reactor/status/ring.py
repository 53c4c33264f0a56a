"""The last lines of the event log in memory, for those who ask over the admin socket."""

from __future__ import annotations

from collections import deque
from itertools import islice

import trio

SIZE = 4096
PIECE = 256


class Ring:
    """Append on the trio thread only. Who falls behind by more than the ring misses lines, as gaps in seq show."""

    def __init__(self, size: int = SIZE) -> None:
        self._lines: deque[bytes] = deque(maxlen=size)
        self._appended = 0
        self._wanted: trio.Event | None = None

    def append(self, line: bytes) -> None:
        """Keep one line of the log, with or without its newline."""
        self._lines.append(line if line.endswith(b"\n") else line + b"\n")
        self._appended += 1
        if self._wanted is not None:
            self._wanted.set()
            self._wanted = None

    def reader(self, *, follow: bool) -> Reader:
        return Reader(self, follow=follow)

    def since(self, position: int) -> tuple[int, bytes]:
        """Up to ``PIECE`` lines from ``position`` on, and the position after them."""
        oldest = self._appended - len(self._lines)
        start = max(position, oldest)
        lines = list(islice(self._lines, start - oldest, start - oldest + PIECE))
        return start + len(lines), b"".join(lines)

    async def grown(self) -> None:
        if self._wanted is None:
            self._wanted = trio.Event()
        await self._wanted.wait()


class Reader:
    def __init__(self, ring: Ring, *, follow: bool) -> None:
        self._ring = ring
        self._follow = follow
        self._position = 0

    async def more(self) -> bytes:
        """The next lines as NDJSON, waiting for them when it follows; empty: there are no more."""
        while True:
            self._position, piece = self._ring.since(self._position)
            if piece or not self._follow:
                return piece
            await self._ring.grown()
