"""Tells people on a terminal what happens on the simulated node, in the order in which it happened."""

from __future__ import annotations

import json
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import trio

from reactor.record.render import render

_BOLD, _DIM, _GOOD, _BAD, _HEAD = "1", "2", "32", "1;31", "1;36"
_WIDTH = 100


class Teller:
    """``write`` takes text, and may wait or raise OSError; it is called by ``run``, everything else only queues."""

    def __init__(self, write: Callable[[str], object], *, colour: bool) -> None:
        self.heard: list[Mapping[str, object]] = []
        """Lines of the agent's log since the last headline."""
        self.unread = False
        """Nobody reads what is told."""
        self._write = write
        self._colour = colour
        self._headlines = 0
        self._queue: deque[str] = deque()
        self._closed = False
        self._written = trio.Event()
        self._moved = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    async def run(self, everything: trio.CancelScope) -> None:
        """Write what is told until ``close``. ``everything`` is cancelled once nobody reads."""
        try:
            while self._queue or not self._closed:
                if self._queue:
                    self._write(self._queue.popleft() + "\n")
                    await trio.lowlevel.checkpoint()
                else:
                    await self._moved.wait()
                    self._moved = trio.Event()
        except OSError:
            self.unread = True
            everything.cancel()
        self._written.set()

    async def close(self) -> None:
        """Returns when all is written."""
        self._closed = True
        self._wake()
        await self._written.wait()

    def _wake(self) -> None:
        self._moved.set()

    def _put(self, text: str, style: str = "") -> None:
        self._queue.append(f"\x1b[{style}m{text}\x1b[0m" if style and self._colour else text)
        self._token.run_sync_soon(self._wake, idempotent=True)

    # ------------------------------------------------------------ what can be told

    def log(self, line: bytes) -> None:
        """One line of the agent's log, from any thread."""
        told = json.loads(line)
        self.heard.append(told)
        self._put(render(told, colour=self._colour))

    def headline(self, text: str) -> None:
        self.heard = []
        self._headlines += 1
        lead = f"--- {self._headlines}. "
        self.blank()
        for line in textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)):
            self._put(line, _HEAD)

    def action(self, text: str, more: str = "") -> None:
        self._put(f"> {text}", _BOLD)
        for line in more.splitlines():
            self._put(f"    {line}", _DIM)

    def good(self, text: str) -> None:
        self._put(f"  ok      {text}", _GOOD)

    def bad(self, text: str) -> None:
        self._put(f"  MISSED  {text}", _BAD)

    def note(self, text: str) -> None:
        self._put(f"  {text}", _BOLD)

    def blank(self) -> None:
        self._put("")

    def table(self, title: str, lines: Iterable[str]) -> None:
        self.blank()
        self._put(title, _HEAD)
        for line in lines:
            self._put(f"  {line}" if line else "")
