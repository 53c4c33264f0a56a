"""What led to an event, and what it led to: lines of the log as trees of causes. Pure.

All lines of one event share its number; ``cause`` names the event before it. Numbers start anew with each run of the
agent, so an event is (run, seq).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Line = Mapping[str, object]
    Key = tuple[str, int]


class Chains:
    """The events of some lines, with who caused whom."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines: dict[Key, list[Line]] = {}
        self._causes: dict[Key, Key] = {}
        for line in lines:
            key = key_of(line)
            if key is None:
                continue
            self._lines.setdefault(key, []).append(line)
            cause = line.get("cause")
            if isinstance(cause, int):
                self._causes[key] = (key[0], cause)
        self._effects: dict[Key, list[Key]] = {}
        for effect, cause_key in self._causes.items():
            self._effects.setdefault(cause_key, []).append(effect)

    def newest(self, seq: int) -> Key | None:
        """The event of this number in the newest run that has one."""
        return next((key for key in reversed(self._lines) if key[1] == seq), None)

    def origin(self, key: Key) -> Key:
        """Where the chain of causes begins, as far as its lines are here."""
        while (cause := self._causes.get(key)) is not None and cause in self._lines:
            key = cause
        return key

    def ancestors(self, key: Key) -> list[Key]:
        """From the origin down to ``key`` itself."""
        path = [key]
        while (cause := self._causes.get(path[-1])) is not None and cause in self._lines:
            path.append(cause)
        return path[::-1]

    def unknown_cause(self, key: Key) -> int | None:
        """The cause of a chain's origin, if the log had one and its line is no longer here."""
        cause = self._causes.get(self.origin(key))
        return None if cause is None else cause[1]

    def tree(
        self,
        keys: Iterable[Key],
        render: Callable[[Line], str],
        *,
        effects: bool,
        shows: Callable[[Line], bool] = lambda line: True,
    ) -> Iterator[str]:
        """Each chain once, indented by depth; with ``effects`` also what the keys led to. Lines that are not to be
        shown are left out where another line tells of the same event.
        """
        keys = list(keys)
        wanted = {key for each in keys for key in self.ancestors(each)}
        if effects:
            wanted |= set(self._below(keys))
        roots = dict.fromkeys(self.origin(key) for key in keys)
        for root in sorted(roots, key=self._place):
            unknown = self.unknown_cause(root)
            if unknown is not None:
                yield f"(#{unknown} led to this; its lines are no longer here)"
            yield from self._draw(root, wanted, render, shows)

    def _draw(
        self, root: Key, wanted: set[Key], render: Callable[[Line], str], shows: Callable[[Line], bool]
    ) -> Iterator[str]:
        stack = [(root, 0)]
        while stack:
            key, depth = stack.pop()
            lines = self._lines[key]
            for line in [line for line in lines if shows(line)] or lines[:1]:
                yield "  " * depth + render(line)
            children = sorted((one for one in self._effects.get(key, ()) if one in wanted), reverse=True)
            stack += [(child, depth + 1) for child in children]

    def _below(self, keys: Iterable[Key]) -> Iterator[Key]:
        stack = list(keys)
        while stack:
            key = stack.pop()
            yield key
            stack += self._effects.get(key, ())

    def _place(self, key: Key) -> int:
        """In the order of the log."""
        return list(self._lines).index(key)


def key_of(line: Line) -> Key | None:
    run, seq = line.get("run"), line.get("seq")
    return (run, seq) if isinstance(run, str) and isinstance(seq, int) else None
