"""The simulated C functions, seen from nvidia-ml-py."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pynvml
import pytest

from reactor.simulate.nvml import codes
from reactor.simulate.nvml.direct import SessionLibrary
from reactor.simulate.nvml.hardware import Hardware
from reactor.simulate.nvml.products import parse


@pytest.fixture
def hardware() -> Hardware:
    return Hardware("2xH100+1xT4")


@pytest.fixture
def library(hardware: Hardware) -> Iterator[SessionLibrary]:
    """pynvml on the simulated functions, initialised."""
    library = SessionLibrary(hardware)
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache = {}
    pynvml.nvmlInit()
    yield library
    library.close()
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache = {}


def code_of(caught: pytest.ExceptionInfo[pynvml.NVMLError]) -> int:
    return caught.value.value


def test_a_buffer_that_is_too_small_is_refused(library: SessionLibrary) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    buffer = ctypes.create_string_buffer(8)
    assert library.nvmlDeviceGetUUID(handle, buffer, ctypes.c_uint(8)) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert buffer.value == b""


def test_a_function_that_an_older_library_lacks_is_not_found(hardware: Hardware, library: SessionLibrary) -> None:
    hardware.missing.add("nvmlDeviceGetMigMode")
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0))
    assert code_of(caught) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_handles_are_invalid_after_an_unplug_and_stay_so(hardware: Hardware, library: SessionLibrary) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    hardware.unplug(0)
    hardware.plug(0)
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetUUID(handle)
    assert code_of(caught) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == hardware.gpus[0].uuid


def test_events_come_only_from_gpus_that_were_registered(hardware: Hardware, library: SessionLibrary) -> None:
    events = pynvml.nvmlEventSetCreate()
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    hardware.xid(0, 79)
    hardware.ecc(1)
    hardware.xid(1, 94, gi=3, ci=1)
    data = pynvml.nvmlEventSetWait(events, 0)
    assert (data.eventType, data.eventData, data.gpuInstanceId, data.computeInstanceId) == (8, 94, 3, 1)
    assert pynvml.nvmlDeviceGetUUID(data.device) == hardware.gpus[1].uuid
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlEventSetWait(events, 0)
    assert code_of(caught) == pynvml.NVML_ERROR_TIMEOUT


def test_a_lost_gpu_answers_what_the_driver_remembers(hardware: Hardware, library: SessionLibrary) -> None:
    """HLT-05"""
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    hardware.lose(0)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == hardware.gpus[0].product.memory
    for query in (pynvml.nvmlDeviceGetMigMode, lambda _: pynvml.nvmlDeviceGetHandleByUUID(hardware.gpus[0].uuid)):
        with pytest.raises(pynvml.NVMLError) as caught:
            query(handle)
        assert code_of(caught) == pynvml.NVML_ERROR_GPU_IS_LOST


def test_a_lost_gpu_can_be_found_again_and_a_card_be_swapped(hardware: Hardware, library: SessionLibrary) -> None:
    before = hardware.gpus[0].uuid
    address = hardware.gpus[0].pci
    hardware.lose(before)
    hardware.find(address)
    assert pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0)) == [0, 0]
    hardware.unplug(address)
    hardware.swap(address)
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == hardware.gpus[0].uuid != before
    with pytest.raises(KeyError):
        hardware.gpu(before)


def test_faults_are_counted_and_meant_for_one_gpu(hardware: Hardware, library: SessionLibrary) -> None:
    hardware.fail("nvmlDeviceGetName", 999, 1, times=2)
    names = []
    for _ in range(3):
        assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
        try:
            names.append(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(1)))
        except pynvml.NVMLError as exc:
            names.append(exc.value)
    assert names == [999, 999, "NVIDIA H100 80GB HBM3"]


def test_nothing_answers_before_it_is_initialised_or_without_a_driver(hardware: Hardware) -> None:
    library = SessionLibrary(hardware)
    count = ctypes.c_uint()
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == pynvml.NVML_ERROR_UNINITIALIZED
    hardware.set_driver(codes.UNLOADED)
    assert library.nvmlInitWithFlags(0) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    library.close()


def test_a_process_that_loaded_the_library_before_an_upgrade_does_not_match(hardware: Hardware) -> None:
    """DRV-03"""
    old = SessionLibrary(hardware)
    hardware.set_driver(codes.READY, "590.1")
    new = SessionLibrary(hardware)
    assert old.nvmlInitWithFlags(0) == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert new.nvmlInitWithFlags(0) == 0
    old.close()
    new.close()


def test_a_spec_that_makes_no_sense_is_refused_with_what_does() -> None:
    with pytest.raises(ValueError, match=r"'8xP200' is not .*known products: H100"):
        parse("8xP200")
    with pytest.raises(ValueError, match="33 GPUs"):
        parse("33xT4")
    assert [p.name for p in parse("1xh100 + T4")] == ["NVIDIA H100 80GB HBM3", "Tesla T4"]
