"""Every call of nvidia-ml-py is made here; what comes back are plain values (dicts of str, int, bool, None).

A ``Library`` is one initialisation of NVML over one set of C functions: the real libnvidia-ml.so.1, or whatever a
provider gives. Errors of one GPU become a failure beside the GPUs that answered; only errors of NVML as a whole raise.
Runs in the worker, so it imports nothing but pynvml (which brings ctypes and little else).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Lock

import pynvml

from reactor.nvml.loading import NvmlFailed

TYPE_CHECKING = False  # typing is not worth its memory in the worker
if TYPE_CHECKING:
    from typing import TypeAlias

    Handle: TypeAlias = ctypes._Pointer[ctypes.Structure]

Plain = str | int | float | bool | None | list[int] | list[str] | list["Record"] | dict[str, "Plain"]
Record = dict[str, "Plain"]

NOWHERE = 0xFFFFFFFF  # GI or CI of an event that concerns the GPU as a whole
_DISPLAYS = ("DGX Display", "NVIDIA DGX Display")  # not for computing; they keep their index
_UNSUPPORTED = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_STATES = {
    pynvml.NVML_ERROR_UNINITIALIZED: "absent",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "absent",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "absent",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
    pynvml.NVML_ERROR_NO_PERMISSION: "denied",
}
_KINDS = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "lost",
    pynvml.NVML_ERROR_NOT_FOUND: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset_required",
}
_RECOVERY = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "none",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain_p2p",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain_and_reset",
}
_EVENTS = {
    pynvml.nvmlEventTypeXidCriticalError: "xid",
    pynvml.nvmlEventTypeDoubleBitEccError: "ecc",
    pynvml.nvmlEventTypeGpuRecoveryAction: "recovery",
    pynvml.nvmlEventTypeGpuUnavailableError: "unavailable",
    pynvml.nvmlEventMigConfigChange: "mig",
}
_CHANNELS = "nvidia-caps-imex-channels"
_BUS_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class WaitFailed(Exception):
    """Waiting for events went wrong; says nothing about any GPU."""


class Stuck(Exception):
    """Raised by simulated functions that are called in place: the call hangs, and the caller is to wait for it.

    ``served`` is told once ``seconds`` were waited; None is for ever.
    """

    def __init__(self, seconds: float | None, served: Callable[[], None]) -> None:
        super().__init__("the call hangs")
        self.seconds = seconds
        self.served = served


class Library:
    """One life of NVML. One thread scans, another may wait.

    ``touching`` is told of each GPU before it is called, ``watching`` once there is something to wait for.
    """

    def __init__(
        self,
        functions: object,
        *,
        dev_root: str,
        sys_root: str,
        touching: Callable[[int | None], None],
        watching: Callable[[], None],
    ) -> None:
        self._functions = functions
        self._pointers: dict[str, object] = {}
        self._dev_root = dev_root
        self._sys_root = sys_root
        self._touching = touching
        self._watching = watching
        self._events: Handle | None = None
        self._system: Handle | None = None
        self._lock = Lock()
        """Held while the event set is filled or replaced: both threads do that."""
        self._monitored: dict[int, bool] = {}
        self._identity: dict[int, tuple[str, str]] = {}
        """(UUID, PCI address) by handle, so that an event is told without touching a GPU that may be ill."""
        self._bound: frozenset[str] = frozenset()
        self.without: dict[str, str] = {}
        """What this driver does not offer, with its answer."""

    @contextmanager
    def _call(self) -> Iterator[None]:
        """pynvml keeps its library in a global: point it at ours. Error codes of NVML as a whole become a state."""
        pynvml.nvmlLib = self._functions
        pynvml._nvmlGetFunctionPointer_cache = self._pointers
        try:
            yield
        except pynvml.NVMLError as exc:
            raise NvmlFailed(_STATES.get(exc.value, "failed"), f"NVML: {exc}") from exc

    def open(self) -> None:
        """Initialise NVML; called again after a failure. GPUs are watched from the first scan on."""
        self._bound = self._bound_addresses()
        self._touching(None)
        with self._call():
            pynvml.nvmlInit()
            self._new_system_events()

    def moved(self) -> str:
        """Why this life of NVML is out of date: GPUs that the driver took or gave up since are unknown to it."""
        now = self._bound_addresses()
        if now == self._bound:
            return ""
        return "GPUs bound to the driver changed: " + " ".join(sorted(now ^ self._bound))

    # ------------------------------------------------------------ scan

    def scan(self, skip: Collection[int] = ()) -> Record:
        """Look at driver and GPUs. ``skip``: indices that are not touched, they are reported as hung."""
        with self._call():
            self._touching(None)
            driver = self._driver()
            handles = self._watch_all(pynvml.nvmlDeviceGetCount(), skip)
            gpus: list[Record] = []
            failures: list[Record] = []
            for index, handle in handles.items():
                if isinstance(handle, dict):
                    failures.append(handle)
                    continue
                self._touching(index)
                gpu = self._gpu(index, handle)
                if "kind" in gpu:
                    failures.append(gpu)
                elif gpu["product"] not in _DISPLAYS:
                    gpus.append(gpu)
            self._touching(None)
            return {"driver": driver, "gpus": gpus, "failures": failures, "nodes": self._nodes()}

    def _driver(self) -> Record:
        try:
            cuda = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        except pynvml.NVMLError:
            cuda = 0
        version = _text(_raw(pynvml.nvmlSystemGetDriverVersion)())
        return {"version": version, "cuda": [cuda // 1000, cuda % 1000 // 10] if cuda else None}

    def _watch_all(self, count: int, skip: Collection[int]) -> dict[int, Handle | Record]:
        """Register the events of every GPU, all of them before any is looked at: nothing happens unseen (HLT-16)."""
        self._need_events()
        found: dict[int, Handle | Record] = {}
        for index in range(count):
            if index in skip:
                found[index] = {"index": index, "kind": "hung", "error": "not touched: a call to it hung"}
                continue
            self._touching(index)
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            except pynvml.NVMLError as exc:
                found[index] = _failure(index, exc)
                continue
            found[index] = handle
            self._watch(handle)
        if any(self._monitored.values()):
            self._watching()
        return found

    def _watch(self, handle: Handle) -> None:
        key = _address(handle)
        with self._lock:
            if key in self._monitored or self._events is None:
                return
            try:
                types = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & sum(_EVENTS)
                if types:
                    pynvml.nvmlDeviceRegisterEvents(handle, types, self._events)
            except pynvml.NVMLError as exc:
                if exc.value in _UNSUPPORTED:
                    self._monitored[key] = False
                return  # any other error: the look at the GPU says what ails it, the next scan tries again
            self._monitored[key] = bool(types & pynvml.nvmlEventTypeXidCriticalError)

    def _gpu(self, index: int, handle: Handle) -> Record:
        """What one GPU answers, or its failure with as much of its identity as could be read."""
        seen: Record = {"index": index}
        try:
            seen["uuid"] = uuid = _text(_raw(pynvml.nvmlDeviceGetUUID)(handle))
            seen["pci"] = pci = _pci(handle)
            self._identity[_address(handle)] = (uuid, pci)
            product = _text(_raw(pynvml.nvmlDeviceGetName)(handle))
            minor = int(pynvml.nvmlDeviceGetMinorNumber(handle))
            # A lost GPU may still answer from what the driver remembers; the way by its UUID does not (HLT-05).
            pynvml.nvmlDeviceGetHandleByUUID(uuid)
            memory = _supported(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))
            compute = _supported(lambda: list(pynvml.nvmlDeviceGetCudaComputeCapability(handle)))
            mode = _supported(lambda: int(pynvml.nvmlDeviceGetMigMode(handle)[0]))
            recovery = self._recovery(handle)
        except pynvml.NVMLError as exc:
            return _failure(index, exc) | seen
        mig = "unsupported" if mode is None else "enabled" if mode else "disabled"
        return seen | {
            "product": product,
            "minor": minor,
            "memory": memory,
            "compute": compute,
            "numa": self._numa(pci),
            "mig": mig,
            "recovery": recovery,
            "monitored": self._monitored.get(_address(handle), False),
        }

    def _recovery(self, handle: Handle) -> str | None:
        """What the driver asks for; a query that fails is None, never "none" (HLT-20)."""
        try:
            field = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
        except pynvml.NVMLError as exc:
            if exc.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
                raise
            if exc.value in _UNSUPPORTED:
                self.without.setdefault("recovery action", str(exc))
            return None
        if field.nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        return _RECOVERY.get(int(field.value.uiVal), "other")

    # ------------------------------------------------------------ events

    def wait(self, milliseconds: int) -> Record | None:
        """The next event, None if none came in time."""
        try:
            with self._call():
                data = pynvml.nvmlEventSetWait(self._events, milliseconds)
                kind = _EVENTS.get(int(data.eventType), "other")
                event: Record = {"kind": kind, "gi": _id(data.gpuInstanceId), "ci": _id(data.computeInstanceId)}
                event["code"] = int(data.eventData)
                event["gpu"], event["pci"] = self._who(data.device)
                if kind == "recovery":
                    event["action"] = self._recovery_now(data.device)
                return event
        except NvmlFailed as exc:
            if isinstance(exc.__cause__, pynvml.NVMLError) and exc.__cause__.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise WaitFailed(str(exc)) from exc

    def restart_watch(self, skip: Collection[int] = ()) -> None:
        """A new event set with every GPU in it; raises WaitFailed."""
        try:
            with self._call():
                with self._lock:
                    if self._events is not None:
                        pynvml.nvmlEventSetFree(self._events)
                    self._events = None
                    self._events = pynvml.nvmlEventSetCreate()
                    self._monitored.clear()
                self._watch_all(pynvml.nvmlDeviceGetCount(), skip)
        except NvmlFailed as exc:
            raise WaitFailed(str(exc)) from exc

    def driver_events(self) -> list[Record]:
        """Binds and unbinds of the driver since the last call; no wait. Nothing where the driver cannot tell."""
        if self._system is None:
            return []
        room = (pynvml.c_nvmlSystemEventData_v1_t * 16)()
        try:
            with self._call():
                version = pynvml.nvmlSystemEventSetWaitRequest_v1
                found = pynvml.nvmlSystemEventSetWait(version, self._system, 0, room, len(room))
        except NvmlFailed as exc:
            self._system = None
            self.without["driver events"] = str(exc)
            return []
        bound = pynvml.nvmlSystemEventTypeGpuDriverBind
        return [{"kind": "driver", "bound": bool(event["eventType"] & bound)} for event in found]

    def _need_events(self) -> None:
        """GPUs are served without events if need be, as on platforms that have none (HLT-10)."""
        with self._lock:
            if self._events is None:
                try:
                    self._events = pynvml.nvmlEventSetCreate()
                except pynvml.NVMLError as exc:
                    self.without["events"] = str(exc)

    def _new_system_events(self) -> None:
        types = pynvml.nvmlSystemEventTypeGpuDriverBind | pynvml.nvmlSystemEventTypeGpuDriverUnbind
        try:
            made = pynvml.nvmlSystemEventSetCreate(pynvml.nvmlSystemEventSetCreateRequest_v1)
            pynvml.nvmlSystemRegisterEvents(pynvml.nvmlSystemRegisterEventRequest_v1, types, made)
        except pynvml.NVMLError as exc:
            self.without["driver events"] = str(exc)
            return
        self._system = made

    def _who(self, handle: Handle) -> tuple[str | None, str | None]:
        if not handle:
            return (None, None)
        known = self._identity.get(_address(handle))
        if known is not None:
            return known
        uuid = pci = None
        try:
            pci = _pci(handle)
            uuid = _text(_raw(pynvml.nvmlDeviceGetUUID)(handle))
        except pynvml.NVMLError:
            pass  # an event whose device cannot be told is told as such (HLT-14)
        return (uuid, pci)

    def _recovery_now(self, handle: Handle) -> str | None:
        try:
            return self._recovery(handle)
        except pynvml.NVMLError:
            return None

    # ------------------------------------------------------------ files

    def _numa(self, pci: str) -> int | None:
        """The node of a GPU, if the host has such a node: -1, nonsense and a missing file are none (NUM-01, NUM-03)."""
        try:
            with open(os.path.join(self._sys_root, "bus/pci/devices", pci, "numa_node"), encoding="ascii") as file:
                node = int(file.read())
        except (OSError, ValueError):
            return None
        return node if os.path.isdir(os.path.join(self._sys_root, f"devices/system/node/node{node}")) else None

    def _nodes(self) -> list[str]:
        dev = os.path.join(self._dev_root, "dev")
        channels = [f"{_CHANNELS}/{name}" for name in _names(os.path.join(dev, _CHANNELS))]
        return ["/dev/" + name for name in (*_names(dev), *channels) if name.startswith("nvidia")]

    def _bound_addresses(self) -> frozenset[str]:
        names = _names(os.path.join(self._sys_root, "bus/pci/drivers/nvidia"))
        return frozenset(name for name in names if _BUS_ADDRESS.fullmatch(name))


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _raw(function: Callable[..., bytes | str]) -> Callable[..., bytes | str]:
    """A function of pynvml without its strict decoding: names are not always UTF-8 (LBL-06)."""
    bare: Callable[..., bytes | str] = getattr(function, "__wrapped__", function)
    return bare


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _pci(handle: Handle) -> str:
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _id(value: int) -> int | None:
    return None if value == NOWHERE else int(value)


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _supported(query: Callable[[], Plain]) -> Plain:
    try:
        return query()
    except pynvml.NVMLError as exc:
        if exc.value in _UNSUPPORTED:
            return None
        raise


def _failure(index: int, exc: pynvml.NVMLError) -> Record:
    return {"index": index, "kind": _KINDS.get(exc.value, "error"), "error": f"NVML: {exc}"}
