"""What must hold of a node at every moment. Each check returns what is wrong, in words."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

from reactor import allocate, view
from reactor import events as e
from reactor.model.condition import Condition
from reactor.model.ids import GpuUuid, identity_of, parse_device_id
from reactor.model.kubelet import Refusal, StreamId
from reactor.model.snapshot import Offer, Snapshot
from reactor.state import State

Id = tuple[str, str]
"""(resource, device id)"""

_BUG = re.compile(r"\b[A-Z]\w*(Error|Exception|Warning)\b")
_OF_ONE_GPU = e.XidReported | e.EccReported | e.RecoveryActionChanged | e.GpuLost


class StateChecks:
    """Follows every event of one life of the agent."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._sent: dict[StreamId, tuple[str, Offer]] = {}

    def event(self, event: e.Event, before: State, after: State) -> Iterator[str]:
        shown = self._snapshot
        self._snapshot = view.snapshot(after, shown) if view.moved(before, after) or after.grants else shown
        yield from _conditions_mark(after, self._snapshot)
        yield from _unique(self._snapshot)
        yield from _sound(after)
        fact = event.fact
        if isinstance(fact, e.HandlerFailed | e.SourceFailed) and _BUG.search(fact.error):
            yield f"{fact} is a bug, not a failure of the world"
        if isinstance(fact, _OF_ONE_GPU):
            yield from _touches_only(fact.gpu, shown, self._snapshot)
        if isinstance(fact, e.ConfigRejected) and self._snapshot.offers != shown.offers:
            yield "a rejected config changed what is listed"
        if isinstance(fact, e.ConfigRead):
            yield from _same_lists_are_not_sent_again(shown, self._snapshot)


def _conditions_mark(state: State, snapshot: Snapshot) -> Iterator[str]:
    """Invariant 1: a condition of the whole GPU marks each of its ids, in one and the same list."""
    for offer in snapshot.offers.values():
        for one in offer.devices():
            if one.healthy and one.gpu is not None and any(_whole(state.conditions, one.gpu)):
                yield f"{one.id} of {offer.resource} is Healthy under {state.conditions[one.gpu]}"


def _whole(conditions: Mapping[GpuUuid, tuple[Condition, ...]], gpu: GpuUuid) -> Iterator[Condition]:
    return (one for one in conditions.get(gpu, ()) if one.placement.whole)


def _unique(snapshot: Snapshot) -> Iterator[str]:
    """An id is in one list only: a kubelet up to 1.36 looks its health up by the id alone."""
    seen: dict[str, str] = {}
    for offer in snapshot.offers.values():
        count = 0
        for one in offer.devices():
            count += 1
            if seen.setdefault(one.id, offer.resource) != offer.resource:
                yield f"{one.id} is listed in {offer.resource} and in {seen[one.id]}"
        if count != len(offer.by_id):
            yield f"{offer.resource} lists an id twice"


def _sound(state: State) -> Iterator[str]:
    for key, hold in state.holds.items():
        if hold.key != key:
            yield f"hold {hold} is kept under {key}"
    for resource, plugin in state.kubelet.plugins.items():
        if len(plugin.streams) > 1:
            yield f"two streams of {resource}"


def _touches_only(gpu: GpuUuid, before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Invariant 1: no other GPU's ids change health by it."""
    for name in before.offers.keys() | after.offers.keys():
        if name not in before.offers or name not in after.offers:
            yield f"{name} came or went by a fault of {gpu}"
            continue
        old, new = before.offers[name].by_id, after.offers[name].by_id
        for one in old.keys() | new.keys():
            ref = parse_device_id(one)
            healthy = [known[one].healthy if one in known else None for known in (old, new)]
            if healthy[0] != healthy[1] and (ref is None or ref.gpu != gpu):
                yield f"{one} went from {healthy[0]} to {healthy[1]} by a fault of {gpu}"


def _same_lists_are_not_sent_again(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Invariant 3: a list that says the same is the same object, so that no stream is woken for it."""
    for name, offer in after.offers.items():
        known = before.offers.get(name)
        same = known is not None and known.groups == offer.groups and known.topology == offer.topology
        if same and known is not None and known.single == offer.single and known is not offer:
            yield f"{name} did not change by a config edit and is sent again"


def granted_twice_the_same(snapshot: Snapshot, fact: e.Granted) -> Iterator[str]:
    """Invariant 7, while the snapshot in force is still the one of the grant (or one that allows it as well)."""
    answers = [allocate.answer(snapshot, fact.resource, [fact.ids]) for _ in range(2)]
    if answers[0] != answers[1]:
        yield f"{fact} is answered by {answers}"
    if not isinstance(answers[0], Refusal) and len(answers[0]) != 1:
        yield f"{fact} has {len(answers[0])} answers to one request"


def owners(pods: Mapping[str, frozenset[Id]]) -> Iterator[str]:
    """Invariant 4: no GPU under two identities at once, no id twice."""
    identities: dict[str, dict[str, str]] = {}
    taken: dict[str, str] = {}
    for uid, ids in pods.items():
        for _, one in ids:
            ref = parse_device_id(one)
            if ref is None:
                continue
            known = identities.setdefault(ref.gpu, {})
            known.setdefault(identity_of(one), uid)
            if len(known) > 1:
                yield f"{ref.gpu} is handed out under two identities: {known}"
            if taken.setdefault(one, uid) != uid:
                yield f"{one} is in the hands of {uid} and of {taken[one]}"


class DeskLog(logging.Handler):
    """What the desk logs is what it swallowed: an error in a preference."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(f"{record.getMessage()}: {record.exc_info}")
