"""The reducer alone: total, pure, and not to be upset by the order in which sources speak (design.md 7.9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from reactor import events as e
from reactor import view
from reactor.handlers.register import step
from reactor.model.hold import CheckpointEntry
from reactor.model.ids import ResourceName
from reactor.model.kubelet import SocketIdentity, StreamId
from reactor.model.snapshot import Offer, Snapshot
from reactor.model.value import replace
from reactor.reducer import reduce
from reactor.state import State
from tests.properties import facts
from tests.properties.profiles import examples

Told = tuple[e.Fact, float]
"""A fact, and the seconds since the one before."""
pauses = st.sampled_from((0.0, 0.0, 0.1, 1.5, 5.0, 11.0, 70.0))


class Fold:
    def __init__(self) -> None:
        self.state, self.seq, self.at = State(), 0, 100.0
        self.tell(e.AgentStarted(version="1", run="r", boot="boot"))

    def tell(self, fact: e.Fact, after: float = 0.0) -> State:
        self.at += after
        self.seq += 1
        event = e.Event(seq=self.seq, cause=None, at=self.at, wall=self.at + 1e9, fact=facts.told_at(fact, self.at))
        before, self.state = self.state, reduce(self.state, event)
        if self.state is not before:
            self.state = replace(self.state, revision=self.seq)
        return self.state

    def shown(self) -> object:
        return content(view.snapshot(self.state))


def content(snapshot: Snapshot) -> object:
    """What a snapshot says, without the numbers that tell when it was made."""
    return (
        {name: _offer(offer) for name, offer in snapshot.offers.items()},
        snapshot.answers,
        snapshot.guard,
    )


def _offer(offer: Offer) -> object:
    return (offer.groups, offer.single, offer.topology)


def fold(told: Iterable[Told]) -> Fold:
    one = Fold()
    for fact, after in told:
        one.tell(fact, after)
    return one


def told(of: st.SearchStrategy[e.Fact], most: int = 25) -> st.SearchStrategy[list[Told]]:
    return st.lists(st.tuples(of, pauses), max_size=most)


@examples(80, 20000)
@given(told(facts.anything))
def test_no_fact_in_any_state_raises_and_no_state_changes_afterwards(told: list[Told]) -> None:
    one = Fold()
    kept: list[tuple[State, str]] = []
    snapshot = Snapshot()
    for fact, after in told:
        state = one.tell(fact, after)
        kept.append((state, repr(state)))
        newer = view.snapshot(state, snapshot)
        for name, offer in newer.offers.items():
            known = snapshot.offers.get(name)
            if known is not None and known is not offer:
                assert replace(offer, revision=known.revision) != known, "the same list under another revision"
        snapshot = newer
        view.waiting(state)
        for resource in facts.RESOURCES:
            step(state, resource)
    assert all(repr(state) == text for state, text in kept)


@examples(80, 20000)
@given(told(facts.anything), facts.levels)
def test_a_level_fact_told_twice_changes_nothing_the_second_time(told: list[Told], level: e.Fact) -> None:
    one = fold(told)
    before = one.tell(level)
    after = one.tell(level)
    assert not view.moved(before, after)
    assert after.faults == before.faults
    assert after.kubelet == before.kubelet


@examples(80, 20000)
@given(told(facts.anything, 15), told(facts.anything, 15))
def test_a_snapshot_moves_only_when_the_state_says_so(first: list[Told], more: list[Told]) -> None:
    one = fold(first)
    for fact, after in more:
        before = one.state
        shown = one.shown()
        if not view.moved(before, one.tell(fact, after)):
            assert one.shown() == shown


def _interleave(sources: Sequence[Sequence[e.Fact]], order: Sequence[int]) -> list[e.Fact]:
    """One order of all facts that keeps the order of each source."""
    left = [list(source) for source in sources]
    merged: list[e.Fact] = []
    for pick in order:
        speaking = [source for source in left if source]
        if not speaking:
            break
        merged.append(speaking[pick % len(speaking)].pop(0))
    return merged + [fact for source in left for fact in source]


_orders = st.lists(st.integers(0, 2), max_size=20)


@examples(80, 20000)
@given(st.tuples(*(st.lists(of, max_size=6) for of in (facts.config, facts.nvml))), _orders, _orders)
def test_config_and_gpus_commute(sources: tuple[list[e.Fact], ...], one: list[int], other: list[int]) -> None:
    """Before any list was sent, the order in which sources speak leaves no trace at all."""
    folds = [fold((fact, 0.0) for fact in _interleave(sources, order)) for order in (one, other)]
    for each in folds:
        each.tell(e.CheckpointFailed(error="none", missing=True))
    assert folds[0].shown() == folds[1].shown()
    assert folds[0].state.conditions.keys() == folds[1].state.conditions.keys()


def _end(one: Fold, pods: e.PodsListed, checkpoint: e.CheckpointRead, scan: e.InventoryTaken) -> Fold:
    """The kubelet is up and reads every list; a re-scan, Lists and the checkpoint each second, quiet times over."""
    identity = SocketIdentity(9, 9)
    one.tell(e.KubeletUp(identity=identity))
    one.tell(scan)
    for _ in range(25):
        for resource in view.names(one.state) | one.state.kubelet.plugins.keys():
            _serve(one, resource, identity)
        one.tell(pods, 1.0)
        one.tell(checkpoint)
        for name in sorted(name for name, at in one.state.deadlines.items() if at <= one.at):
            one.tell(e.DeadlinePassed(name=name))
    one.tell(scan, 61.0)
    return one


def _serve(one: Fold, name: ResourceName, identity: SocketIdentity) -> None:
    offer = view.snapshot(one.state).offers.get(name)
    if offer is None:
        one.tell(e.PluginClosed(resource=name))
        return
    if name not in one.state.kubelet.plugins:
        one.tell(e.PluginServing(resource=name, socket="s"))
        one.tell(e.PluginRegistered(resource=name, socket="s", identity=identity))
        one.tell(e.StreamOpened(resource=name, socket="s", stream=StreamId(1)))
    healthy = sum(listed.healthy for listed in offer.devices())
    one.tell(
        e.Advertised(
            resource=name,
            stream=StreamId(1),
            revision=one.state.revision,
            nudge=offer.nudge,
            healthy=healthy,
            unhealthy=len(offer) - healthy,
            size=0,
        )
    )


@st.composite
def _last_books(draw: st.DrawFn) -> tuple[e.PodsListed, e.CheckpointRead]:
    """List and checkpoint that agree, of pods that nobody told of before: no pod loses what it has while it runs."""
    pods = draw(facts.pods(facts.LAST_PODS))
    entries = tuple(
        CheckpointEntry(pod_uid=f"uid of {pod.pod}", container="c", resource=resource, id=one)
        for pod in pods
        for resource, one, _ in pod.devices
    )
    return e.PodsListed(pods=pods, asked_at=0.0), e.CheckpointRead(entries=entries, asked_at=0.0)


@examples(40, 5000)
@given(
    st.tuples(*(st.lists(of, max_size=5) for of in (facts.config, facts.nvml, facts.books))),
    _orders,
    _orders,
    _last_books(),
    st.builds(e.InventoryTaken, inventory=facts.inventories()),
)
def test_sources_commute_once_the_dust_has_settled(
    sources: tuple[list[e.Fact], ...],
    one: list[int],
    other: list[int],
    books: tuple[e.PodsListed, e.CheckpointRead],
    scan: e.InventoryTaken,
) -> None:
    """Whatever order they spoke in: after a re-scan, Lists and a quiet time, the same is listed and held."""
    folds = [_end(fold((fact, 0.0) for fact in _interleave(sources, order)), *books, scan) for order in (one, other)]
    # A held id of a resource that was never served is ours to list if it was planned when it was first seen, or later;
    # and where no list can be sent, nothing has the kubelet close its books.
    planned = {resource.name for resource in folds[0].state.plan.resources}
    shown = [[view.snapshot(each.state).offers[name] for name in sorted(planned)] for each in folds]
    assert [_offer(offer) for offer in shown[0]] == [_offer(offer) for offer in shown[1]]
    if planned:
        assert folds[0].state.holds.keys() == folds[1].state.holds.keys()
