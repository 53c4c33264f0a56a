"""A log file that another process writes, and waiting for its lines: by inotify, so that no moment is polled for."""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import trio

from tests.loglines import validate
from tests.process.story import Line

PATIENCE = 30.0
"""Seconds after which something counts as never come."""
_IN_MODIFY = 0x2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def _watched(path: Path) -> Iterator[int]:
    handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if handle < 0 or _libc.inotify_add_watch(handle, os.fsencode(path), _IN_MODIFY) < 0:
        raise OSError(ctypes.get_errno(), f"cannot watch {path}")
    try:
        yield handle
    finally:
        os.close(handle)


class Log:
    """Text lines. A place in it (``mark``) is an offset; what came before it is not looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def mark(self) -> int:
        """The place where it ends now."""
        return self.path.stat().st_size

    def text(self, since: int = 0) -> str:
        with self.path.open("rb") as file:
            file.seek(since)
            return file.read().decode(errors="replace")

    def find(self, pattern: str, since: int = 0) -> list[str]:
        """Every line that this regular expression is found in."""
        return [line for line in self.text(since).splitlines() if re.search(pattern, line)]

    async def until(self, pattern: str, *, since: int = 0, within: float = PATIENCE) -> str:
        """The first line that this regular expression is found in; waits for it."""
        return await self.first(lambda line: line if re.search(pattern, line) else None, pattern, since, within)

    async def first(
        self, look: Callable[[str], str | None], what: str, since: int = 0, within: float = PATIENCE
    ) -> str:
        try:
            with trio.fail_after(within):
                async with aclosing(self.follow(since)) as lines:
                    async for line in lines:
                        if (found := look(line)) is not None:
                            return found
        except trio.TooSlowError:
            tail = "\n".join(self.text(since).splitlines()[-25:])
            raise AssertionError(f"{within} s in vain for {what!r} in {self.path}, which ends:\n{tail}") from None
        raise AssertionError("a log that is followed has no end")

    async def follow(self, since: int = 0) -> AsyncGenerator[str, None]:
        """Whole lines from there on, without end: use it with ``aclosing``."""
        with _watched(self.path) as handle, self.path.open("rb") as file:
            file.seek(since)
            rest = b""
            while True:
                while data := file.read(1 << 20):
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        yield line.decode(errors="replace")
                await trio.lowlevel.wait_readable(handle)
                os.read(handle, 1 << 16)


class AgentLog(Log):
    """The agent's log: each line is validated against the published schema as it is looked at."""

    def lines(self, since: int = 0) -> list[Line]:
        whole = self.text(since).encode().split(b"\n")[:-1]
        return [validate(line + b"\n") for line in whole]

    def of(self, event: str, since: int = 0, **fields: object) -> list[Line]:
        """The lines of this event with these fields."""
        return [line for line in self.lines(since) if _fits(line, event, fields)]

    async def event(self, event: str, *, since: int = 0, within: float = PATIENCE, **fields: object) -> Line:
        """The first line of this event with these fields; waits for it."""

        def look(line: str) -> str | None:
            return line if _fits(json.loads(line), event, fields) else None

        found = await self.first(look, f"{event} {fields or ''}", since, within)
        return validate(found.encode() + b"\n")


def _fits(line: Line, event: str, fields: dict[str, object]) -> bool:
    return line["event"] == event and all(line.get(name) == wanted for name, wanted in fields.items())
