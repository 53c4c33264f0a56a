"""The event watch: one wait after another, made anew when a wait fails, with a growing pause in between.

A failed wait condemns no GPU (HLT-12) and a time-out is silence (HLT-13).
"""

from __future__ import annotations

from collections.abc import Callable

from reactor.nvml.library import Library, Record, WaitFailed
from reactor.nvml.patience import FAILED_AFTER, FIRST_PAUSE, LONGEST_PAUSE


class Watch:
    """``tell`` takes each event. Used by one thread."""

    def __init__(self, library: Library, tell: Callable[[Record], None]) -> None:
        self._library = library
        self._tell = tell
        self._failures = 0
        self.skip: frozenset[int] = frozenset()
        self.beats = 0

    def turn(self, milliseconds: int) -> float | None:
        """Wait once. None: nothing came; else something was told and the next turn is due after so many seconds."""
        try:
            if self._failures:
                self._library.restart_watch(self.skip)
            event = self._library.wait(milliseconds)
        except WaitFailed as exc:
            return self._failed(str(exc))
        self.beats += 1
        if self._failures >= FAILED_AFTER:
            self._tell({"kind": "watch_recovered"})
        self._failures = 0
        if event is not None:
            self._tell(event)
            return 0.0
        for told in self._library.driver_events():
            self._tell(told)
        return None

    def _failed(self, error: str) -> float:
        self._failures += 1
        if self._failures == 1:
            self._tell({"kind": "watch_restarted", "error": error})
        elif self._failures == FAILED_AFTER:
            self._tell({"kind": "watch_failed", "error": error})
        return float(min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE))
