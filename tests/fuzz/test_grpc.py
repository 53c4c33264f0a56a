"""Bytes that no kubelet sends: the plugin stays, others are served, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from tests.fuzz.plugin import SERVICE, Plugin, message, plugin, request, speak, status_of
from tests.kubelet import fakes

METHODS = ("GetDevicePluginOptions", "ListAndWatch", "Allocate", "GetPreferredAllocation", "PreStartContainer")
EXAMPLES = 1500 if os.environ.get("GPU_REACTOR_THOROUGH") else 30
bounded = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def served() -> Iterator[Plugin]:
    """At the end a well-behaved client is answered, and nothing is left of the others."""
    with plugin() as served:
        assert served.serves()
        before = served.at_rest()
        yield served
        assert served.serves()
        assert served.at_rest() == before
        assert served.complaints == []


def frames() -> st.SearchStrategy[bytes]:
    """HTTP/2 frames of any kind: a length that mostly is true, type, flags, stream, content."""

    def frame(kind: int, flags: int, stream: int, body: bytes, lie: int) -> bytes:
        length = max(0, len(body) + lie)
        return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body

    one = st.builds(
        frame,
        st.integers(0, 12),
        st.integers(0, 255),
        st.sampled_from([0, 1, 2, 3, 1 << 31, (1 << 32) - 1]),
        st.binary(max_size=40),
        st.sampled_from([0, 0, 0, 0, -1, 1, 1 << 20]),
    )
    return st.lists(one, max_size=6).map(b"".join)


@bounded
@given(st.binary(max_size=200))
def test_what_is_no_http_at_all(served: Plugin, data: bytes) -> None:
    speak(served.path, data)


@bounded
@given(frames(), st.booleans())
def test_frames_in_no_sensible_order(served: Plugin, data: bytes, end_well: bool) -> None:
    speak(served.path, PREFACE + bytes(3) + b"\x04" + bytes(5) + data, end_well=end_well)


def test_a_frame_of_a_later_http_is_ignored(served: Plugin) -> None:
    """As RFC 9113 has it: the call on the same connection is answered."""
    call = request(SERVICE + "GetDevicePluginOptions", message(b""))
    unknown = b"\x00\x00\x03\x10\x00" + bytes(4) + b"abc"
    assert status_of(speak(served.path, call + unknown, listen=True)) == "0"
    settings_end = len(PREFACE) + 9 + int.from_bytes(call[len(PREFACE) : len(PREFACE) + 3], "big")
    assert status_of(speak(served.path, call[:settings_end] + unknown + call[settings_end:], listen=True)) == "0"


@bounded
@given(st.sampled_from(METHODS), st.binary(max_size=200), st.sampled_from([0, 0, 0, 1, 7]))
def test_a_message_that_means_nothing(served: Plugin, method: str, body: bytes, compressed: int) -> None:
    """It is answered or refused, not dropped: whoever sent it is not left waiting."""
    data = request(SERVICE + method, message(body, compressed=compressed))
    streams = method == "ListAndWatch"
    assert speak(served.path, data, listen=not streams) or streams


@bounded
@given(st.sampled_from(METHODS), st.binary(max_size=50), st.integers(0, 0xFFFFFFFF), st.booleans())
def test_a_message_whose_length_is_a_lie(
    served: Plugin, method: str, body: bytes, length: int, end: bool
) -> None:
    speak(served.path, request(SERVICE + method, message(body, length=length), end=end))


@bounded
@given(st.text(st.characters(codec="ascii", min_codepoint=33), max_size=40))
def test_a_method_that_is_not_there(served: Plugin, method: str) -> None:
    assert speak(served.path, request(f"/{method}", message(b"")), listen=True)


@bounded
@given(st.sampled_from(METHODS), st.data())
def test_a_call_that_breaks_off_anywhere(served: Plugin, method: str, data: st.DataObject) -> None:
    asked = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[f"{fakes.uuid(0)}::0"])])
    whole = request(SERVICE + method, message(asked.SerializeToString()))
    speak(served.path, whole[: data.draw(st.integers(0, len(whole)))])


ids = st.sampled_from([*(one.id for one in fakes.group(0, replicas=4)), "nvidia0", "", "GPU-", "x" * 500, "::", "é\0"])


@bounded
@given(st.lists(st.lists(ids, max_size=6), max_size=5))
def test_an_allocate_of_any_ids_is_answered_and_told_of(served: Plugin, asked: list[list[str]]) -> None:
    before = len(served.log.lines)
    body = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=one) for one in asked])
    assert speak(served.path, request(SERVICE + "Allocate", message(body.SerializeToString())), listen=True)
    served.at_rest()
    (told,) = [line[0] for line in served.log.lines[before:]]
    assert told in ("granted", "refused")


@bounded
@given(st.lists(st.tuples(st.lists(ids, max_size=6), st.lists(ids, max_size=6), st.integers(-(1 << 31), (1 << 31) - 1))))
def test_a_preference_of_anything_is_never_an_error(
    served: Plugin, asked: list[tuple[list[str], list[str], int]]
) -> None:
    """An error here would reject the pod."""
    requests = [
        pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        for available, must, size in asked
    ]
    body = pb.PreferredAllocationRequest(container_requests=requests).SerializeToString()
    heard = speak(served.path, request(SERVICE + "GetPreferredAllocation", message(body)), listen=True)
    assert status_of(heard) == "0"
