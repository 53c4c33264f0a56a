"""The GPUs and the driver of one simulated node, as NVML sees them.

``Hardware`` is told what happens (plain methods: xid, lose, unplug, hang, fail, ...) and answers calls: a function name
and plain arguments in, a return code and plain values out. It knows no ctypes and never waits. Belongs to one thread.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reactor.simulate.nvml import codes
from reactor.simulate.nvml.codes import NOWHERE, Event, Value
from reactor.simulate.nvml.faults import Faults, Hang
from reactor.simulate.nvml.products import Product, parse

_UUIDS = uuid.UUID("6c1f3d0e-6f0a-4d5b-9f43-0d0a3c1b7e52")


@dataclass(slots=True, kw_only=True, eq=False)
class SimGpu:
    """One card, also while it is not plugged in."""

    uuid: str
    product: Product
    name: bytes
    pci: str
    minor: int
    numa: int
    handle: int
    """New each time that it is plugged in: old ones are invalid for ever."""
    mig: bool = False
    present: bool = True
    lost: bool = False
    recovery: int = 0

    @property
    def pci_numbers(self) -> tuple[int, int, int]:
        domain, bus, device = self.pci.split(".")[0].split(":")
        return (int(domain, 16), int(bus, 16), int(device, 16))


@dataclass(slots=True, eq=False)
class EventSet:
    session: int
    masks: dict[int, int] = field(default_factory=dict)
    queue: deque[tuple[int, int, int, int, int]] = field(default_factory=deque)
    """(handle, type, data, gi, ci)"""


class Hardware:
    def __init__(self, spec: str = "8xH100", *, minors: Sequence[int] = (), version: str = "580.95.05") -> None:
        self.spec = spec
        products = parse(spec)
        self.gpus = [self._gpu(n, len(products), product, minors) for n, product in enumerate(products)]
        self.faults = Faults()
        self.version = version
        self.cuda = 13000
        self.driver = codes.READY
        self.missing: set[str] = set()
        """Functions that the library of this node is too old for."""
        self.inits = 0
        self._handles = 0x7F0000000000 + 0x1000 * len(self.gpus)
        self._sessions: dict[int, str] = {}
        """Version of the library that a session has mapped, and whether it is initialised."""
        self._ready: set[int] = set()
        self._sets: dict[int, EventSet] = {}
        self._system: dict[int, tuple[int, deque[int]]] = {}
        self._next = 1
        self._listeners: list[Callable[[], None]] = []

    @staticmethod
    def _gpu(n: int, count: int, product: Product, minors: Sequence[int]) -> SimGpu:
        return SimGpu(
            uuid=f"GPU-{uuid.uuid5(_UUIDS, f'{product.name} {n}')}",
            product=product,
            name=product.name.encode(),
            pci=f"0000:{4 + n * 7:02x}:00.0",
            minor=minors[n] if minors else n,
            numa=0 if count == 1 else n * 2 // count,
            handle=0x7F0000000000 + 0x1000 * n,
        )

    # ------------------------------------------------------------ what happens

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """``listener`` is called after each thing that happened; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def changed(self) -> None:
        for listener in list(self._listeners):
            listener()

    @property
    def present(self) -> list[SimGpu]:
        """By index."""
        return [gpu for gpu in self.gpus if gpu.present]

    def gpu(self, which: int | str | SimGpu) -> SimGpu:
        """By place in the spec (not by index), UUID or PCI address."""
        if isinstance(which, SimGpu):
            return which
        if isinstance(which, int):
            return self.gpus[which]
        for gpu in self.gpus:
            if which in (gpu.uuid, gpu.pci):
                return gpu
        raise KeyError(f"no simulated GPU {which}")

    def xid(self, which: int | str | SimGpu, code: int, gi: int | None = None, ci: int | None = None) -> None:
        self.event(which, codes.XID, code, gi, ci)

    def ecc(self, which: int | str | SimGpu, gi: int | None = None, ci: int | None = None) -> None:
        """A double-bit ECC error."""
        self.event(which, codes.DOUBLE_BIT_ECC, 0, gi, ci)

    def recovery(self, which: int | str | SimGpu, action: int) -> None:
        """The driver asks for another recovery action (0: none)."""
        self.gpu(which).recovery = action
        self.event(which, codes.RECOVERY, action)

    def event(
        self, which: int | str | SimGpu, kind: int, data: int = 0, gi: int | None = None, ci: int | None = None
    ) -> None:
        gpu = self.gpu(which)
        event = (gpu.handle, kind, data, NOWHERE if gi is None else gi, NOWHERE if ci is None else ci)
        for made in self._sets.values():
            if made.masks.get(gpu.handle, 0) & kind:
                made.queue.append(event)
        self.changed()

    def lose(self, which: int | str | SimGpu, *, xid: int | None = None) -> None:
        """It falls off the bus: still counted, some of what the driver remembers is still answered."""
        if xid is not None:
            self.xid(which, xid)
        self.gpu(which).lost = True
        self.changed()

    def find(self, which: int | str | SimGpu) -> None:
        """A lost GPU answers again."""
        self.gpu(which).lost = False
        self.changed()

    def unplug(self, which: int | str | SimGpu) -> None:
        """It goes: the indices behind it move down, its handles are invalid."""
        gpu = self.gpu(which)
        gpu.present = False
        for made in self._sets.values():
            made.masks.pop(gpu.handle, None)
        self._driver_event(bound=False)

    def plug(self, which: int | str | SimGpu) -> None:
        gpu = self.gpu(which)
        gpu.present, gpu.lost, gpu.recovery = True, False, 0
        self._handles += 0x1000
        gpu.handle = self._handles
        self._driver_event(bound=True)

    def swap(self, which: int | str | SimGpu) -> SimGpu:
        """Another card of the same product in the same place."""
        gpu = self.gpu(which)
        gpu.uuid = f"GPU-{uuid.uuid5(_UUIDS, f'after {gpu.uuid}')}"
        self.plug(gpu)
        return gpu

    def hang(self, function: str, which: int | str | None = None, seconds: float | None = None) -> Hang:
        """Calls of ``function`` (to that GPU) hang: once for ``seconds``, or until the returned hang is released."""
        hang = Hang(function, None if which is None else self.gpu(which).uuid, seconds, self.changed)
        self.faults.hangs.append(hang)
        return hang

    def fail(self, function: str, code: int, which: int | str | None = None, times: int | None = None) -> None:
        """Calls of ``function`` (to that GPU) answer ``code``, so many times (None: until ``mend``)."""
        self.faults.fail(function, code, None if which is None else self.gpu(which).uuid, times)
        self.changed()

    def mend(self, function: str | None = None) -> None:
        """No more faults and hangs (of that function)."""
        self.faults.mend(function)
        self.changed()

    def set_driver(self, state: str, version: str | None = None) -> None:
        """One of codes.READY, ABSENT (no library), UNLOADED (no module), MISMATCH; a new version is an upgrade."""
        if state not in codes.INIT:
            raise ValueError(f"{state!r} is none of " + ", ".join(codes.INIT))
        self.driver = state
        self.version = version or self.version
        if state in (codes.ABSENT, codes.UNLOADED):
            self._sets.clear()
            self._system.clear()
            self._ready.clear()
        self.changed()

    def _driver_event(self, *, bound: bool) -> None:
        for _, queue in self._system.values():
            queue.append(codes.BIND if bound else codes.UNBIND)
        self.changed()

    # ------------------------------------------------------------ what is answered

    def connect(self) -> int:
        """A process loads the library: it keeps the version of now, whatever is installed later."""
        session = self._number()
        self._sessions[session] = self.version
        return session

    def shut_down(self, session: int) -> None:
        """That process let go of NVML and keeps the library."""
        version = self._sessions[session]
        self.disconnect(session)
        self._sessions[session] = version

    def disconnect(self, session: int) -> None:
        """That process ended."""
        self._sessions.pop(session, None)
        self._ready.discard(session)
        self._sets = {n: made for n, made in self._sets.items() if made.session != session}
        self._system = {n: made for n, made in self._system.items() if made[0] != session}

    def pending(self, event_set: int) -> bool:
        """Whether a wait on this set would be answered at once."""
        made = self._sets.get(event_set)
        return made is None or bool(made.queue) or self.faults.would_fail("nvmlEventSetWait_v2")

    def call(self, session: int, function: str, arguments: Sequence[Value]) -> tuple[int, list[Value]]:
        """One C function: its return code and what it writes. Raises ``Stuck`` where it hangs."""
        gpu = self._meant(function, arguments)
        self.faults.check_hang(function, gpu.uuid if gpu else None)
        code = self.faults.take(function, gpu.uuid if gpu else None)
        if code:
            return (code, [])
        if function == "nvmlInitWithFlags":
            return (self._init(session), [])
        if session not in self._ready:
            away = codes.INIT[self.driver]
            return (away or codes.UNINITIALIZED, [])
        return codes.ANSWERS[function](self, session, gpu, arguments)

    def _init(self, session: int) -> int:
        code = codes.INIT[self.driver]
        if not code and self._sessions[session] != self.version:
            code = codes.LIB_RM_VERSION_MISMATCH
        if not code:
            self.inits += 1
            self._ready.add(session)
        return code

    def _meant(self, function: str, arguments: Sequence[Value]) -> SimGpu | None:
        """The GPU that a call is about, so that faults of one GPU find it."""
        present = self.present
        if function == "nvmlDeviceGetHandleByIndex_v2":
            index = int(arguments[0])
            return present[index] if index < len(present) else None
        if function == "nvmlDeviceGetHandleByUUID":
            return next((gpu for gpu in present if gpu.uuid == arguments[0]), None)
        if function.startswith("nvmlDevice") and arguments:
            return next((gpu for gpu in present if gpu.handle == arguments[0]), None)
        return None

    # ------------------------------------------------------------ event sets, for codes.ANSWERS

    def _number(self) -> int:
        self._next += 1
        return self._next

    def new_set(self, session: int) -> int:
        number = self._number()
        self._sets[number] = EventSet(session)
        return number

    def new_system_set(self, session: int) -> int:
        number = self._number()
        self._system[number] = (session, deque())
        return number

    def free_set(self, number: int) -> None:
        self._sets.pop(number, None)
        self._system.pop(number, None)

    def register(self, gpu: SimGpu, mask: int, number: int) -> bool:
        if number not in self._sets:
            return False
        self._sets[number].masks[gpu.handle] = mask
        return True

    def next_event(self, number: int) -> Event | None:
        made = self._sets.get(number)
        return made.queue.popleft() if made and made.queue else None

    def system_events(self, number: int, room: int) -> list[int]:
        queue = self._system[number][1] if number in self._system else deque[int]()
        return [queue.popleft() for _ in range(min(room, len(queue)))]
