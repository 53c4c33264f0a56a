"""Whatever is in a line, it is one JSON object under 12 KiB."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactor.record.catalogue import ConfigFault, ConfigRejected
from reactor.record.encode import Stamp, encode, timestamp
from reactor.record.line import SHOWN
from reactor.record.served import AllocationRefused
from tests.loglines import validate

STAMP = Stamp(seq=7, cause=None, ts=timestamp(0.0), run="r1", node="node-1")
TEXT = st.text(st.characters(codec=None), max_size=40).map(lambda text: text * 100)


@given(TEXT, TEXT)
def test_no_text_makes_a_line_long_or_broken(path: str, text: str) -> None:
    problems = tuple(ConfigFault(line=1, column=1, path=path, text=text) for _ in range(SHOWN))
    line = ConfigRejected(path=path, digest="d", problems=problems, count=99, msg=text)
    told = validate(encode(line, STAMP))
    assert told["count"] == 99


def test_short_texts_are_whole() -> None:
    line = AllocationRefused(resource="nvidia.com/gpu", ids=("a",), count=1, error="é" * 1000, faulty=0, msg="m")
    assert validate(encode(line, STAMP))["error"] == "é" * 1000


def test_a_cut_text_says_so() -> None:
    line = AllocationRefused(resource="nvidia.com/gpu", ids=("a",), count=1, error="x" * 2000, faulty=0, msg="m")
    assert str(validate(encode(line, STAMP))["error"]).endswith("x…")


def test_time_is_utc_with_microseconds() -> None:
    assert timestamp(1_796_000_000.5) == "2026-11-30T00:53:20.500000Z"
