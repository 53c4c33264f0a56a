"""Rows of results, each beside its floor and its goal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import nan
from statistics import median


@dataclass(slots=True, kw_only=True)
class Row:
    """One number of each round, ours and the floor's."""

    name: str
    unit: str
    below: float | None = None
    """The goal: the median is less than this."""
    exactly: float | None = None
    """The goal: every round is this."""
    ratio_below: float | None = None
    """The goal: at most this times the floor."""
    ours: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        return median(self.ours) if self.ours else nan

    @property
    def ratio(self) -> float:
        return self.value / median(self.floor) if self.floor and median(self.floor) else nan

    @property
    def goal(self) -> str:
        if self.exactly is not None:
            return f"{self.exactly:g}"
        if self.below is not None:
            return f"< {self.below:g}"
        return f"<= {self.ratio_below:g}x" if self.ratio_below is not None else ""

    @property
    def met(self) -> bool | None:
        """None: no goal was set."""
        if self.exactly is not None:
            return all(value == self.exactly for value in self.ours)
        if self.below is not None:
            return self.value < self.below
        return None if self.ratio_below is None else self.ratio <= self.ratio_below

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.value,
            "rounds": self.ours,
            "floor": self.floor,
            "ratio": self.ratio,
            "goal": self.goal,
            "met": self.met,
        }


def quantile(values: Sequence[float], part: float) -> float:
    """The value that ``part`` of them do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def render(rows: Iterable[Row]) -> str:
    table = [("what", "unit", "median", "[min-max]", "floor", "[min-max]", "ratio", "goal", "met")]
    for row in rows:
        if row.ours:
            met = {None: "", True: "yes", False: "NO"}[row.met]
            ratio = "" if row.ratio != row.ratio else f"{row.ratio:.2f}"
            table.append((row.name, row.unit, *_spread(row.ours), *_spread(row.floor), ratio, row.goal, met))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    left = 2  # words to the left, numbers to the right
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    )


def _spread(values: Sequence[float]) -> tuple[str, str]:
    if not values:
        return "", ""
    return _short(median(values)), f"[{_short(min(values))}-{_short(max(values))}]"


def _short(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
