"""A journal of any life, from any point of it on, replays to the same state with the same verdicts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reactor import events as e
from reactor.cli.replay import Replay
from reactor.record.journal import event_record, head_record
from tests.properties import facts
from tests.properties.profiles import examples
from tests.properties.test_reducer import Fold, Told, told


@examples(40, 5000)
@given(told(facts.anything), st.integers(0, 25))
def test_any_life_replays_from_any_point_on(told: list[Told], begin: int) -> None:
    one = Fold()
    records: list[Mapping[str, object]] = []
    for number, (fact, after) in enumerate(told):
        before = one.state
        state = one.tell(fact, after)
        event = e.Event(seq=one.seq, cause=None, at=one.at, wall=one.at + 1e9, fact=facts.told_at(fact, one.at))
        if number == begin:
            records.append(head_record(before, 0))
        if number >= begin:
            records.append(event_record(event, before, state))
    replay = Replay(print_line=lambda line: None)
    for record in records:
        replay.take(msgspec.json.encode(record))
    assert replay.complaints == []
    assert replay.events == max(0, len(told) - begin)
    assert not records or replay.state == one.state
