"""What each C function of the simulated NVML answers, function by function, and the numbers it answers with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from reactor.simulate.nvml.hardware import Hardware, SimGpu

Value = int | str
Event = tuple[int, int, int, int, int]
Answer = tuple[int, list[Value]]

READY, ABSENT, UNLOADED, MISMATCH = "ready", "absent", "unloaded", "mismatch"
SUCCESS: int = pynvml.NVML_SUCCESS
UNINITIALIZED: int = pynvml.NVML_ERROR_UNINITIALIZED
LIB_RM_VERSION_MISMATCH: int = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
INVALID: int = pynvml.NVML_ERROR_INVALID_ARGUMENT
NOT_SUPPORTED: int = pynvml.NVML_ERROR_NOT_SUPPORTED
NOT_FOUND: int = pynvml.NVML_ERROR_NOT_FOUND
TIMEOUT: int = pynvml.NVML_ERROR_TIMEOUT
LOST: int = pynvml.NVML_ERROR_GPU_IS_LOST
INIT: dict[str, int] = {
    READY: SUCCESS,
    ABSENT: pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    UNLOADED: pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    MISMATCH: LIB_RM_VERSION_MISMATCH,
}
NOWHERE = 0xFFFFFFFF
XID: int = pynvml.nvmlEventTypeXidCriticalError
DOUBLE_BIT_ECC: int = pynvml.nvmlEventTypeDoubleBitEccError
RECOVERY: int = pynvml.nvmlEventTypeGpuRecoveryAction
UNAVAILABLE: int = pynvml.nvmlEventTypeGpuUnavailableError
MIG: int = pynvml.nvmlEventMigConfigChange
BIND: int = pynvml.nvmlSystemEventTypeGpuDriverBind
UNBIND: int = pynvml.nvmlSystemEventTypeGpuDriverUnbind

Answerer = Callable[["Hardware", int, "SimGpu | None", Sequence[Value]], Answer]
OnGpu = Callable[["SimGpu", Sequence[Value]], Answer]


def _gpu(answer: OnGpu, *, remembered: bool = False) -> Answerer:
    """A question about one GPU. ``remembered``: the driver answers it even for a lost one."""

    def ask(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
        if gpu is None:
            return (INVALID, [])
        if gpu.lost and not remembered:
            return (LOST, [])
        return answer(gpu, arguments)

    return ask


def _shutdown(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    hardware.shut_down(session)
    return (SUCCESS, [])


def _handle_by_index(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    return (INVALID, []) if gpu is None else (SUCCESS, [gpu.handle])


def _handle_by_uuid(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    return (NOT_FOUND, []) if gpu is None else (LOST, []) if gpu.lost else (SUCCESS, [gpu.handle])


def _memory(gpu: SimGpu, arguments: Sequence[Value]) -> Answer:
    total = gpu.product.memory
    return (NOT_SUPPORTED, []) if total is None else (SUCCESS, [total, total, 0])


def _mig_mode(gpu: SimGpu, arguments: Sequence[Value]) -> Answer:
    return (SUCCESS, [int(gpu.mig), int(gpu.mig)]) if gpu.product.mig else (NOT_SUPPORTED, [])


def _field(gpu: SimGpu, arguments: Sequence[Value]) -> Answer:
    """Arguments: handle, field. Out: the field's own return code, its value."""
    if arguments[1] != pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION or not gpu.product.recovery:
        return (SUCCESS, [NOT_SUPPORTED, 0])
    return (SUCCESS, [SUCCESS, gpu.recovery])


def _supported_events(gpu: SimGpu, arguments: Sequence[Value]) -> Answer:
    if not gpu.product.xids:
        return (NOT_SUPPORTED, [])
    return (SUCCESS, [XID | DOUBLE_BIT_ECC | (RECOVERY | UNAVAILABLE if gpu.product.recovery else 0) | MIG])


def _register(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    """Arguments: handle, types, set."""
    if gpu is None or gpu.lost:
        return (LOST if gpu else INVALID, [])
    return (SUCCESS if hardware.register(gpu, int(arguments[1]), int(arguments[2])) else INVALID, [])


def _new_set(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    return (SUCCESS, [hardware.new_set(session)])


def _new_system_set(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    return (SUCCESS, [hardware.new_system_set(session)])


def _free(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    hardware.free_set(int(arguments[0]))
    return (SUCCESS, [])


def _wait(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    """Arguments: set, milliseconds (which whoever calls has waited already)."""
    event = hardware.next_event(int(arguments[0]))
    return (TIMEOUT, []) if event is None else (SUCCESS, list(event))


def _system_wait(hardware: Hardware, session: int, gpu: SimGpu | None, arguments: Sequence[Value]) -> Answer:
    """Arguments: set, milliseconds, room."""
    events = hardware.system_events(int(arguments[0]), int(arguments[2]))
    return (SUCCESS if events else TIMEOUT, list(events))


def _count(hardware: Hardware) -> Answer:
    return (SUCCESS, [len(hardware.present)])


ANSWERS: dict[str, Answerer] = {
    "nvmlShutdown": _shutdown,
    "nvmlSystemGetDriverVersion": lambda hardware, *_: (SUCCESS, [hardware.version]),
    "nvmlSystemGetCudaDriverVersion_v2": lambda hardware, *_: (SUCCESS, [hardware.cuda]),
    "nvmlDeviceGetCount_v2": lambda hardware, *_: _count(hardware),
    "nvmlDeviceGetHandleByIndex_v2": _handle_by_index,
    "nvmlDeviceGetHandleByUUID": _handle_by_uuid,
    "nvmlDeviceGetUUID": _gpu(lambda gpu, _: (SUCCESS, [gpu.uuid]), remembered=True),
    "nvmlDeviceGetPciInfo_v3": _gpu(lambda gpu, _: (SUCCESS, [*gpu.pci_numbers, gpu.pci]), remembered=True),
    "nvmlDeviceGetName": _gpu(lambda gpu, _: (SUCCESS, [gpu.name.decode("latin-1")]), remembered=True),
    "nvmlDeviceGetMinorNumber": _gpu(lambda gpu, _: (SUCCESS, [gpu.minor]), remembered=True),
    "nvmlDeviceGetMemoryInfo": _gpu(_memory, remembered=True),
    "nvmlDeviceGetCudaComputeCapability": _gpu(lambda gpu, _: (SUCCESS, list(gpu.product.compute)), remembered=True),
    "nvmlDeviceGetMigMode": _gpu(_mig_mode),
    "nvmlDeviceGetFieldValues": _gpu(_field),
    "nvmlDeviceGetSupportedEventTypes": _gpu(_supported_events, remembered=True),
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetCreate": _new_set,
    "nvmlEventSetFree": _free,
    "nvmlEventSetWait_v2": _wait,
    "nvmlSystemEventSetCreate": _new_system_set,
    "nvmlSystemRegisterEvents": lambda *_: (SUCCESS, []),
    "nvmlSystemEventSetFree": _free,
    "nvmlSystemEventSetWait": _system_wait,
}
