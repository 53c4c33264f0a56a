"""Which lines of the event log a person wants to see. Pure, but for the clock that ``since`` is counted from."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    Line = Mapping[str, object]

LEVELS = ("debug", "info", "warning", "error")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_age(text: str) -> float:
    """``10m`` to seconds. ValueError says what to write."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _UNITS):
        raise ValueError(f"{text!r} is not an age such as 90s, 10m, 2h or 1d")
    return float(int(number) * _UNITS[unit])


def stamp(wall: float) -> str:
    """Unix time in the spelling of ``ts``, which sorts as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall))


class Filter:
    """Lines that pass all of what is asked. A GPU is an index, a UUID or a PCI address; indices are learnt from lines
    that name both, or from ``indices``.
    """

    def __init__(
        self,
        *,
        since: str = "",
        event: str = "",
        gpu: str = "",
        resource: str = "",
        level: str = "debug",
        indices: Mapping[str, str] | None = None,
    ) -> None:
        self._since = since
        self._event = event
        self._gpu = gpu.lower()
        self._resource = resource
        self._level = LEVELS.index(level)
        self._indices = dict(indices or {})

    def passes(self, line: Line) -> bool:
        self._learn(line)
        level = line.get("level")
        return (
            str(line.get("ts", "")) >= self._since
            and (not self._event or fnmatchcase(str(line.get("event", "")), self._event))
            and (level not in LEVELS or LEVELS.index(str(level)) >= self._level)
            and (not self._resource or line.get("resource") == self._resource)
            and (not self._gpu or self._is_about(line))
        )

    def _learn(self, line: Line) -> None:
        """The newest word on an index counts: it moves when a GPU goes."""
        if isinstance(line.get("index"), int) and line.get("gpu"):
            self._indices[str(line["index"])] = str(line["gpu"]).lower()

    def _is_about(self, line: Line) -> bool:
        wanted = {self._gpu, self._indices.get(self._gpu, self._gpu)}
        gpus = line.get("gpus")
        named = [line.get("gpu"), line.get("pci"), *(gpus if isinstance(gpus, list) else ())]
        return any(str(name).lower() in wanted for name in named if name)
