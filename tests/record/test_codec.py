"""What the journal holds comes back as it went in."""

from __future__ import annotations

import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor import events as e
from reactor.config import Accepted, parse
from reactor.model.condition import Placement, Policy, XidClass
from reactor.model.hold import HoldKey
from reactor.model.value import replace
from reactor.record.codec import Unreadable, from_plain, is_record, to_plain
from reactor.state import Books, State
from tests.status.node import GPUS, READY, WHOLE, foreign_hold, hold, holding, xid

SHARED = b"""\
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0, GPU-x], replicas: 4}]}}
"""


def over_json(value: object, kind: object) -> object:
    return from_plain(msgspec.json.decode(msgspec.json.encode(to_plain(value))), kind)


def config():
    found = parse(SHARED.replace(b", GPU-x", b""), path="c.yaml")
    assert isinstance(found, Accepted), found
    return found.config


STATE = replace(
    holding(READY, hold(GPUS[0]), foreign_hold()),
    config=replace(READY.config, config=config()),
    conditions={GPUS[0].uuid: (xid(placement=Placement(gi=1)),)},
    freed={HoldKey(WHOLE, hold(GPUS[1]).id): "uid"},
    books=Books(checkpoint_ids=frozenset({hold(GPUS[0]).key}), pods=frozenset()),
    policy=Policy(by_number={79: XidClass.IGNORE}, by_class={XidClass.RESET: XidClass.RESTART}),
    deadlines={"x": 1.5},
)


def test_a_state_comes_back_whole():
    assert over_json(STATE, State) == STATE


@pytest.mark.parametrize(
    "fact",
    [
        e.XidReported(gpu=GPUS[0].uuid, placement=Placement(gi=1, ci=0), xid=79, synthetic=True),
        e.ConfigRead(config=config(), digest="d", text="text"),
        e.StateRestored(holds=(hold(GPUS[0]),), freed={HoldKey(WHOLE, hold(GPUS[0]).id): "uid"}, config=config()),
        e.PodsListed(pods=(), asked_at=2.0),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_fact_comes_back_whole(fact: e.Fact):
    assert over_json(fact, type(fact)) == fact


def test_every_type_of_every_fact_and_of_the_state_can_be_read():
    """A new type that the codec does not know is found here, not in a journal that nobody can read."""
    seen: set[object] = set()
    todo: list[object] = [State, *(kind for kind in vars(e).values() if is_record(kind) and kind is not e.Event)]
    while todo:
        kind = todo.pop()
        if kind in seen or kind is ...:
            continue
        seen.add(kind)
        todo += typing.get_args(kind)
        if isinstance(kind, typing.NewType):
            todo.append(kind.__supertype__)
        if is_record(kind):
            todo += typing.get_type_hints(kind).values()
        elif isinstance(kind, type) and not typing.get_args(kind):
            known = (str, int, float, bool, type(None), object)
            assert issubclass(kind, known), kind


def test_a_field_that_is_missing_has_its_default():
    plain = to_plain(Placement(gi=3))
    assert isinstance(plain, dict)
    del plain["ci"]
    assert from_plain(plain, Placement) == Placement(gi=3)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["$", "gpu", "x"]), inner),
        max_leaves=8,
    )
)
def test_what_is_none_is_refused_in_one_way(plain: object):
    try:
        from_plain(plain, State)
    except Unreadable:
        return
    raise AssertionError(plain)
