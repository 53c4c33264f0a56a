"""What was told, in order, and waiting for what is not told yet."""

from __future__ import annotations

from collections.abc import Callable

import trio

Line = dict[str, object]

PATIENCE = 20.0
"""Seconds after which something counts as never told: this machine has few cores and many tests."""


class Story:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._more = trio.Event()

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self._more.set()
        self._more = trio.Event()

    @property
    def now(self) -> int:
        """A place in the story: pass it as ``after``."""
        return len(self.lines)

    def of(self, event: str, after: int = 0, **fields: object) -> list[Line]:
        return [line for line in self.lines[after:] if _fits(line, event, fields)]

    async def until(self, event: str, *, after: int = 0, count: int = 1, **fields: object) -> Line:
        """The line of this event with these fields, the ``count``-th after that place; waits for it."""
        await self.when(lambda: len(self.of(event, after, **fields)) >= count, f"{event} {fields or ''}")
        return self.of(event, after, **fields)[count - 1]

    async def when(self, holds: Callable[[], bool], what: str = "that") -> None:
        """Return when this holds; looked at after each line."""
        try:
            with trio.fail_after(PATIENCE):
                while not holds():
                    await self._more.wait()
        except trio.TooSlowError:
            raise AssertionError(f"waited in vain for {what} after:\n{self}") from None

    def __str__(self) -> str:
        return "\n".join(f"{line['event']}: {line.get('msg') or line}" for line in self.lines)


async def soon(holds: Callable[[], bool], what: str = "that") -> None:
    """Return when this holds. For what nobody tells of, such as the files of another process."""
    try:
        with trio.fail_after(PATIENCE):
            while not holds():  # noqa: ASYNC110 - there is no event
                await trio.sleep(0.01)
    except trio.TooSlowError:
        raise AssertionError(f"waited in vain for {what}") from None


def _fits(line: Line, event: str, fields: dict[str, object]) -> bool:
    return line["event"] == event and all(line.get(name) == wanted for name, wanted in fields.items())
