"""What is wrong with a text, gathered whole and told in the order of the text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from reactor.model.config import ConfigProblem

MAX_PROBLEMS = 100
"""More help nobody, and each may cost a search for what was meant."""


class Mark(NamedTuple):
    """A place in the text, both counted from 1; 0: the file as a whole."""

    line: int
    column: int


class Problems:
    def __init__(self) -> None:
        self._found: list[ConfigProblem] = []
        self._more = 0

    def __len__(self) -> int:
        return len(self._found) + self._more

    def add(self, mark: Mark, path: str, message: str, *, peer: str = "") -> None:
        """``peer``: what the device plugin makes of it, where it does not refuse it."""
        if len(self._found) < MAX_PROBLEMS:
            self._found.append(ConfigProblem(line=mark.line, column=mark.column, path=path, message=message, peer=peer))
        else:
            self._more += 1

    def sorted(self) -> tuple[ConfigProblem, ...]:
        found = sorted(self._found, key=lambda problem: (problem.line, problem.column))
        if self._more:
            found.append(ConfigProblem(line=0, column=0, path="", message=f"and {self._more} more problems"))
        return tuple(found)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that was probably meant; a mere slip of case always is."""
    by_fold = {choice.casefold(): str(choice) for choice in choices}
    close = difflib.get_close_matches(word[:64].casefold(), by_fold, n=1, cutoff=0.6)
    return by_fold[close[0]] if close else None


def join(path: str, key: str) -> str:
    """The path of a key within a mapping."""
    shown = key if key.isprintable() and len(key) <= 60 else quote(key)
    return f"{path}.{shown}" if path else shown


def quote(text: str) -> str:
    """A text as it is shown in a message: on one line, and not longer than that."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
