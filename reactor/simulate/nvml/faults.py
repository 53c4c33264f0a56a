"""Faults that a simulated node was told to have: return codes and hangs, by function, GPU and count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reactor.nvml.library import Stuck


@dataclass(slots=True)
class _Fault:
    function: str
    code: int
    gpu: str | None
    left: int | None


class Hang:
    """A function that does not return, for some seconds (each call, once) or until released."""

    def __init__(self, function: str, gpu: str | None, seconds: float | None, changed: Callable[[], None]) -> None:
        self.function = function
        self.gpu = gpu
        self.seconds = seconds
        self.over = False
        self.met = 0
        """Calls that ran into it."""
        self._changed = changed

    def release(self) -> None:
        self.over = True
        self._changed()


class Faults:
    def __init__(self) -> None:
        self.hangs: list[Hang] = []
        self._faults: list[_Fault] = []

    def fail(self, function: str, code: int, gpu: str | None, times: int | None) -> None:
        self._faults.append(_Fault(function, code, gpu, times))

    def mend(self, function: str | None) -> None:
        self._faults = [f for f in self._faults if function not in (None, f.function)]
        for hang in self.hangs:
            hang.over = hang.over or function in (None, hang.function)

    def would_fail(self, function: str) -> bool:
        return any(fault.function == function for fault in self._faults)

    def take(self, function: str, gpu: str | None) -> int:
        """The code that this call is to answer, 0 for none."""
        for fault in self._faults:
            if fault.function == function and fault.gpu in (None, gpu):
                if fault.left is not None:
                    fault.left -= 1
                    if fault.left <= 0:
                        self._faults.remove(fault)
                return fault.code
        return 0

    def check_hang(self, function: str, gpu: str | None) -> None:
        hang = self.hang_of(function, gpu)
        if hang is not None:
            hang.met += 1
            raise Stuck(hang.seconds, hang.release)

    def hang_of(self, function: str, gpu: str | None) -> Hang | None:
        self.hangs = [hang for hang in self.hangs if not hang.over]
        return next((h for h in self.hangs if h.function == function and h.gpu in (None, gpu)), None)
