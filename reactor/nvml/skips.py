"""GPUs that are left alone because a call to them hung: each is tried again after a while, later each time."""

from __future__ import annotations

from collections.abc import Iterable

FIRST = 30.0
LONGEST = 600.0


class Skips:
    """By NVML index, which is all that is known of a GPU that does not answer."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        self._pause: dict[int, float] = {}

    def hung(self, index: int, now: float) -> None:
        self._pause[index] = min(self._pause.get(index, FIRST / 2) * 2, LONGEST)
        self._until[index] = now + self._pause[index]

    def now(self, now: float, stuck: frozenset[int] = frozenset()) -> frozenset[int]:
        """``stuck``: a call to it still hangs in the kernel, so another would too."""
        return frozenset(index for index, until in self._until.items() if now < until or index in stuck)

    def answered(self, indices: Iterable[int]) -> None:
        for index in indices:
            self._until.pop(index, None)
            self._pause.pop(index, None)

    def clear(self) -> None:
        """Indices mean other GPUs now."""
        self._until.clear()
        self._pause.clear()
