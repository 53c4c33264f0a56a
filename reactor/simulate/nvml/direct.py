"""The simulated functions over hardware in the same process, called in the trio thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from reactor.nvml.direct import DirectNvml
from reactor.simulate.nvml.codes import Value
from reactor.simulate.nvml.functions import SimulatedLibrary
from reactor.simulate.nvml.hardware import Hardware


class Session:
    """One process that has loaded the library, as far as the hardware can tell."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._number = hardware.connect()
        self._off: Callable[[], None] | None = None

    @property
    def missing(self) -> frozenset[str]:
        return frozenset(self._hardware.missing)

    def call(self, function: str, arguments: Sequence[Value]) -> tuple[int, list[Value]]:
        return self._hardware.call(self._number, function, arguments)

    def on_change(self, wake: Callable[[], None] | None) -> None:
        if self._off is not None:
            self._off()
        self._off = None if wake is None else self._hardware.on_change(wake)

    def end(self) -> None:
        self.on_change(None)
        self._hardware.disconnect(self._number)


class SessionLibrary(SimulatedLibrary):
    def __init__(self, hardware: Hardware) -> None:
        self.session = Session(hardware)
        super().__init__(self.session)

    def on_event(self, wake: Callable[[], None] | None) -> None:
        self.session.on_change(wake)

    def close(self) -> None:
        self.session.end()


def direct(hardware: Hardware, root: Path | None = None, *, scan_deadline: float = 5.0) -> DirectNvml:
    """The client that most tests use. ``root``: where ``files.lay_out`` has put /dev and /sys."""
    root = root or Path("/nonexistent")
    return DirectNvml(
        lambda: SessionLibrary(hardware), dev_root=root, sys_root=root / "sys", scan_deadline=scan_deadline
    )
