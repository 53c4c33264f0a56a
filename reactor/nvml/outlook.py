"""What both clients remember between scans: the driver's lives, the GPUs as last seen, and the notes on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from reactor.model.gpu import DriverState, Gpu, Inventory
from reactor.model.ids import GpuUuid, PciAddress
from reactor.nvml import wire
from reactor.nvml.interface import NvmlUnavailable
from reactor.nvml.notes import Note, NotesLost

if TYPE_CHECKING:  # NVML is loaded in the worker, not in the agent
    from reactor.nvml.library import Record

NOTES = 8192
"""Notes that are kept for a reader who does not come; more than that and a rescan is the better news."""


class Outlook:
    def __init__(self) -> None:
        self._send, self.notes = trio.open_memory_channel[Note](NOTES)
        self._lost = False
        self._generation = 0
        self._version = ""
        self._away = True
        self._last: dict[int, Gpu] = {}
        self._at: dict[PciAddress, GpuUuid] = {}

    def tell(self, note: Note) -> None:
        """Hand a note over without waiting; what does not fit is replaced by one NotesLost."""
        try:
            if self._lost:
                self._send.send_nowait(NotesLost())
                self._lost = False
            self._send.send_nowait(note)
        except trio.WouldBlock:
            self._lost = True

    def event(self, raw: wire.RawEvent) -> None:
        note = wire.note(raw, self._at)
        if note is not None:
            self.tell(note)

    def plain_event(self, record: Record) -> None:
        self.event(msgspec.convert(record, wire.RawEvent))

    def scanned(self, scan: wire.RawScan) -> Inventory:
        """A scan came to an end; a first one after the driver was away begins a new generation."""
        if self._away or scan.driver.version != self._version:
            self._generation += 1
            self._last = {}
        self._away = False
        self._version = scan.driver.version
        found = wire.inventory(scan, self._generation, self._last)
        self._last = {gpu.index: gpu for gpu in found.gpus} | {
            failure.index: old for failure in found.failures for old in self._last.values() if old.uuid == failure.uuid
        }
        self._at |= {gpu.pci: gpu.uuid for gpu in found.gpus}
        return found

    def unavailable(self, state: str, error: str) -> NvmlUnavailable:
        """A scan failed as a whole."""
        known = DriverState(state)
        if known.definite:
            self._away = True
        return NvmlUnavailable(known, error)
