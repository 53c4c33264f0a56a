"""What holds for any text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reactor.config import Rejected, effective, parse
from reactor.model.config import DeviceListStrategy, HoldsPolicy, MigStrategy
from tests.config.texts import accepted

_WORDS = [
    "version",
    "flags",
    "plugin",
    "sharing",
    "timeSlicing",
    "mps",
    "resources",
    "name",
    "replicas",
    "devices",
    "rename",
    "holds",
    "gpus",
    "pattern",
    "v1",
    "gpu",
    "all",
    "true",
    "null",
    "2",
    "0:1",
    "010",
    "&a",
    "*a",
    "<<",
    "!!int",
    "'",
    '"',
    "-",
    "?",
    ":",
    ",",
    "[",
    "]",
    "{",
    "}",
    "|",
    ">",
    "#",
    "%",
    "@",
]
_BREAKS = ["\n", "\n  ", "\n    - ", ": ", "- ", "---\n", "\r\n", "\t", "\x00", "\ufeff", "é", "\u2028"]
_TOKENS = st.sampled_from(_WORDS + _BREAKS)


@given(st.one_of(st.binary(max_size=200), st.lists(_TOKENS, max_size=40).map(lambda words: "".join(words).encode())))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_config_or_problems(data: bytes) -> None:
    found = parse(data, path="c.yaml")
    if isinstance(found, Rejected):
        assert found.problems
        assert all(problem.message and "\n" not in problem.message for problem in found.problems)


_NAMES = st.sampled_from(["gpu", "nvidia.com/a100", "t4"])
_DEVICES = st.one_of(
    st.just("all"), st.integers(1, 8).map(str), st.lists(st.integers(0, 7), min_size=1).map(str), st.just("[0:1]")
)


@given(
    mig=st.sampled_from(MigStrategy),
    strategy=st.lists(st.sampled_from(DeviceListStrategy), max_size=3),
    holds=st.sampled_from(HoldsPolicy),
    single=st.booleans(),
    renamed=st.booleans(),
    entries=st.lists(st.tuples(_NAMES, _DEVICES, st.integers(2, 100)), max_size=3, unique_by=lambda entry: entry[0]),
)
@settings(max_examples=100, deadline=None)
def test_the_effective_config_read_again_is_the_same_config(
    mig: MigStrategy,
    strategy: list[DeviceListStrategy],
    holds: HoldsPolicy,
    single: bool,
    renamed: bool,
    entries: list[tuple[str, str, int]],
) -> None:
    text = f"flags: {{migStrategy: {mig}, plugin: {{deviceListStrategy: [{', '.join(strategy)}]}}}}\nholds: {holds}\n"
    if entries:
        listed = ", ".join(f"{{name: {name}, devices: {devices}, replicas: {n}}}" for name, devices, n in entries)
        text += f"sharing: {{timeSlicing: {{renameByDefault: {str(renamed).lower()}, "
        text += f"failRequestsGreaterThanOne: {str(single).lower()}, resources: [{listed}]}}}}\n"
    config = accepted(text).config
    assert accepted(effective(config)).config == config
