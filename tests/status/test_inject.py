from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor.events import (
    DevicesChanged,
    EccReported,
    Fact,
    FaultCleared,
    GpuLost,
    RecoveryActionChanged,
    XidReported,
)
from reactor.model.condition import WHOLE_GPU, Placement
from reactor.model.errors import Refused
from reactor.model.gpu import RecoveryAction
from reactor.model.value import replace
from reactor.status.inject import parse_fact
from tests.status.node import GPUS, READY, xid

FIRST, SECOND = GPUS[0].uuid, GPUS[1].uuid


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("xid=79 gpu=0", XidReported(gpu=FIRST, placement=WHOLE_GPU, xid=79, synthetic=True)),
        ("xid=94 gpu=1 gi=2 ci=0", XidReported(gpu=SECOND, placement=Placement(gi=2, ci=0), xid=94, synthetic=True)),
        ("ecc gpu=1 gi=2", EccReported(gpu=SECOND, placement=Placement(gi=2), synthetic=True)),
        ("gpu-lost gpu=1", GpuLost(gpu=SECOND, error="injected: GPU lost", synthetic=True)),
        ("clear gpu=0 reason=replaced", FaultCleared(gpu=FIRST, reason="replaced", synthetic=True)),
        (
            "recovery gpu=1 action=reset",
            RecoveryActionChanged(gpu=SECOND, action=RecoveryAction.RESET, synthetic=True),
        ),
        ("rescan", DevicesChanged(what="a person asked for a scan", synthetic=True)),
    ],
)
def test_words_become_the_fact_of_a_source_marked_synthetic(text: str, fact: Fact):
    """HLT-29"""
    assert parse_fact(text.split(), READY) == fact


@pytest.mark.parametrize("name", ["1", SECOND, SECOND.lower(), "0000:02:00.0"])
def test_a_gpu_is_named_by_index_uuid_or_pci_address(name: str):
    assert parse_fact(["xid=79", f"gpu={name}"], READY) == parse_fact(["xid=79", "gpu=1"], READY)


def test_a_gpu_that_is_gone_can_still_be_cleared():
    gone = replace(READY, gpus=(), conditions={SECOND: (xid(),)}, pci={SECOND: GPUS[1].pci})
    for name in (SECOND, GPUS[1].pci):
        fact = parse_fact(["clear", f"gpu={name}", "reason=replaced"], gone)
        assert fact == FaultCleared(gpu=SECOND, reason="replaced", synthetic=True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "nothing to inject"),
        ("xidd=79 gpu=0", "did you mean xid?"),
        ("explode", "there is xid, ecc, gpu-lost, clear, recovery, rescan"),
        ("xid gpu=0", "write xid=NUMBER"),
        ("ecc=3 gpu=0", "ecc takes no value"),
        ("xid=79", "gpu=... is missing"),
        ("xid=79 gpu=2", "no GPU '2'; this node shows 0 ("),
        ("xid=-1 gpu=0", "xid=-1 is not a number"),
        ("xid=²9 gpu=0", "is not a number"),
        ("xid=99999999999999999999999999 gpu=0", "is not a number"),
        ("xid=79 gpu=0 ci=1", "ci=... needs gi=..."),
        ("xid=79 gpu=0 gpu=1", "gpu is given twice"),
        ("xid=79 gpu", "gpu needs a value"),
        ("xid=79 gpu=0 gpi=1", "did you mean"),
        ("rescan gpu=0", "unknown option of rescan 'gpu'; there is none"),
        ("recovery gpu=0 action=rest", "did you mean reset?"),
        ("recovery gpu=0", "action=... is missing"),
        ("clear gpu=0", "reason=... is missing"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(text: str, complaint: str):
    with pytest.raises(Refused) as caught:
        parse_fact(text.split(), READY)
    assert complaint in str(caught.value)


WORD = st.one_of(st.sampled_from(["xid=79", "ecc", "rescan", "gpu=0", "gi=1", "ci=1", "reason=x", "=", ""]), st.text())


@given(st.lists(WORD, max_size=4))
def test_any_words_are_a_fact_or_refused(words: list[str]):
    with suppress(Refused):
        assert parse_fact(words, READY).synthetic
