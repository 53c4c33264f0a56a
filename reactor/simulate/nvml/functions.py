"""The C functions of the simulated NVML: ctypes arguments in, structs and buffers written, a return code out.

nvidia-ml-py looks them up by name as in a loaded library. What they answer comes from a backend: the hardware in this
process (``direct``), or the one behind a socket (``remote``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Protocol

import pynvml

from reactor.simulate.nvml.codes import Value

_INSUFFICIENT_SIZE: int = pynvml.NVML_ERROR_INSUFFICIENT_SIZE

Call = Callable[..., tuple[int, list[Value]]]


class Backend(Protocol):
    @property
    def missing(self) -> frozenset[str]:
        """Functions that this library does not have."""
        ...

    def call(self, function: str, arguments: Sequence[Value]) -> tuple[int, list[Value]]: ...


class Function:
    """Called as a C function is; pynvml sets ``restype`` on some."""

    restype: object = None

    def __init__(self, library: SimulatedLibrary, name: str) -> None:
        self._backend = library.backend
        self._name = name
        self._marshal = _MARSHAL[name]

    def __call__(self, *arguments: object) -> object:
        return self._marshal(lambda *plain: self._backend.call(self._name, plain), *arguments)


class SimulatedLibrary:
    """What a CDLL would be."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __getattr__(self, name: str) -> Function:
        if name not in _MARSHAL or name in self.backend.missing:
            raise AttributeError(f"undefined symbol: {name}")
        return Function(self, name)


def _target(reference: object) -> ctypes.Structure:
    """What a byref() points at."""
    target: ctypes.Structure = getattr(reference, "_obj")  # noqa: B009  (mypy does not know the attribute)
    return target


def _number(value: object) -> int:
    plain: object = getattr(value, "value", value)
    return plain if isinstance(plain, int) else 0


def _address(handle: ctypes.c_void_p) -> int:
    """Opaque handles are pointers that nobody follows."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _put_address(place: int, value: int) -> None:
    ctypes.c_void_p.from_address(place).value = value


def _write(code: int, out: Sequence[Value], references: Sequence[object]) -> int:
    if not code:
        for reference, value in zip(references, out, strict=True):
            setattr(_target(reference), "value", value)  # noqa: B010
    return code


def _text(code: int, out: Sequence[Value], buffer: ctypes.Array[ctypes.c_char], size: ctypes.c_uint) -> int:
    if code:
        return code
    data = str(out[0]).encode("latin-1")
    if len(data) >= size.value:
        return _INSUFFICIENT_SIZE
    buffer.value = data
    return 0


def _plain(call: Call, *arguments: object) -> int:
    return call(*map(_number, arguments))[0]


def _numbers_out(call: Call, *references: object) -> int:
    return _write(*call(), references)


def _device_numbers_out(call: Call, device: ctypes.c_void_p, *references: object) -> int:
    return _write(*call(_address(device)), references)


def _device_text(call: Call, device: ctypes.c_void_p, buffer: ctypes.Array[ctypes.c_char], size: ctypes.c_uint) -> int:
    return _text(*call(_address(device)), buffer, size)


def _system_text(call: Call, buffer: ctypes.Array[ctypes.c_char], size: ctypes.c_uint) -> int:
    return _text(*call(), buffer, size)


def _put_handle(answer: tuple[int, list[Value]], reference: object) -> int:
    code, out = answer
    if not code:
        _put_address(ctypes.addressof(_target(reference)), int(out[0]))
    return code


def _by_index(call: Call, index: ctypes.c_uint, reference: object) -> int:
    return _put_handle(call(index.value), reference)


def _by_uuid(call: Call, uuid: ctypes.c_char_p, reference: object) -> int:
    return _put_handle(call((uuid.value or b"").decode("latin-1")), reference)


def _new_set(call: Call, reference: object) -> int:
    return _put_handle(call(), reference)


def _pci(call: Call, device: ctypes.c_void_p, reference: object) -> int:
    code, out = call(_address(device))
    if not code:
        info = _target(reference)
        for name, value in zip(("domain", "bus", "device", "busId"), out, strict=True):
            setattr(info, name, value)
    return code


def _memory(call: Call, device: ctypes.c_void_p, reference: object) -> int:
    code, out = call(_address(device))
    if not code:
        memory = _target(reference)
        for name, value in zip(("total", "free", "used"), out, strict=True):
            setattr(memory, name, value)
    return code


def _fields(call: Call, device: ctypes.c_void_p, count: ctypes.c_int32, reference: object) -> int:
    values = getattr(reference, "_obj")  # noqa: B009
    for n in range(count.value):
        code, out = call(_address(device), int(values[n].fieldId))
        if code:
            return code
        values[n].nvmlReturn = int(out[0])
        values[n].value.uiVal = int(out[1])
    return 0


def _register(call: Call, device: ctypes.c_void_p, types: ctypes.c_ulonglong, event_set: ctypes.c_void_p) -> int:
    return call(_address(device), types.value, _address(event_set))[0]


def _free(call: Call, event_set: ctypes.c_void_p) -> int:
    return call(_address(event_set))[0]


def _wait(call: Call, event_set: ctypes.c_void_p, reference: object, timeout: ctypes.c_uint) -> int:
    code, out = call(_address(event_set), timeout.value)
    if not code:
        data = _target(reference)
        _put_address(ctypes.addressof(data), int(out[0]))
        for name, value in zip(("eventType", "eventData", "gpuInstanceId", "computeInstanceId"), out[1:], strict=True):
            setattr(data, name, value)
    return code


def _new_system_set(call: Call, reference: object) -> int:
    request = _target(reference)
    code, out = call()
    if not code:
        _put_address(ctypes.addressof(request) + type(request).set.offset, int(out[0]))
    return code


def _with_system_set(call: Call, reference: object) -> int:
    return call(_system_set(_target(reference)))[0]


def _system_wait(call: Call, reference: object) -> int:
    request = _target(reference)
    code, out = call(_system_set(request), request.timeoutms, request.dataSize)
    if not code:
        for n, kind in enumerate(out):
            request.data[n].eventType = kind
        request.numEvent = len(out)
    return code


def _system_set(request: ctypes.Structure) -> int:
    return _address(request.set)


def _error_string(call: Call, code: object) -> bytes:
    return f"simulated error {_number(code)}".encode()


_MARSHAL: dict[str, Callable[..., object]] = {
    "nvmlInitWithFlags": _plain,
    "nvmlShutdown": _plain,
    "nvmlErrorString": _error_string,
    "nvmlSystemGetDriverVersion": _system_text,
    "nvmlSystemGetCudaDriverVersion_v2": _numbers_out,
    "nvmlDeviceGetCount_v2": _numbers_out,
    "nvmlDeviceGetHandleByIndex_v2": _by_index,
    "nvmlDeviceGetHandleByUUID": _by_uuid,
    "nvmlDeviceGetUUID": _device_text,
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetName": _device_text,
    "nvmlDeviceGetMinorNumber": _device_numbers_out,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetCudaComputeCapability": _device_numbers_out,
    "nvmlDeviceGetMigMode": _device_numbers_out,
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetSupportedEventTypes": _device_numbers_out,
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetCreate": _new_set,
    "nvmlEventSetFree": _free,
    "nvmlEventSetWait_v2": _wait,
    "nvmlSystemEventSetCreate": _new_system_set,
    "nvmlSystemRegisterEvents": _with_system_set,
    "nvmlSystemEventSetFree": _with_system_set,
    "nvmlSystemEventSetWait": _system_wait,
}
