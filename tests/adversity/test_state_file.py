"""Whatever stands in the state file: it is used, or set aside with a word; it never ends the agent."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from reactor import view
from reactor.agent import reparse
from reactor.handlers.remember import Memory, memory, recall
from reactor.model.condition import Condition, FaultClass, Placement
from reactor.model.hold import Hold, HoldKey, PodRef
from reactor.model.ids import DeviceId, GpuUuid, Identity, PciAddress, ResourceName
from reactor.model.kubelet import SocketIdentity
from tests.reducer.world import GPU, SHARED, WHOLE_A, A, B, World, share

bounded = settings(max_examples=60, deadline=None)


class Restored(World):
    """A life that begins with this state file."""

    def __init__(self, data: bytes) -> None:
        self.fact = recall(data, reparse)
        super().__init__()

    def config(self, *args: object, **other: object) -> None:
        if self.seq == 1:
            self.tell(self.fact)
        super().config(*args, **other)  # type: ignore[arg-type]

    def live(self) -> None:
        """A day in which everything happens that asks about what was remembered."""
        self.pods(WHOLE_A)
        self.now += 11
        self.pods()
        self.checkpoint()
        self.kubelet(2)
        for replicas, name in ((3, None), (2, SHARED), (0, None)):
            self.config(replicas, name)
            for resource in sorted(view.names(self.state) - self.state.kubelet.plugins.keys()):
                self.serve(resource)
            self.inventory(generation=replicas)
        for name in list(self.state.deadlines):
            self.deadline(name)
        self.grant(WHOLE_A)


def lives_on(data: bytes) -> None:
    world = Restored(data)
    world.live()
    kept = msgspec.json.encode(memory(world.state))
    assert recall(kept, reparse).problem == "", "what it writes then can be read"


words = st.text(max_size=8)
ids = st.sampled_from([DeviceId(A), DeviceId(B), share(A, 0), share(B, 10**9), DeviceId("nvidia0")]) | words.map(
    DeviceId
)
gpus = st.sampled_from([A, B]) | words.map(GpuUuid)
names = st.sampled_from([GPU, SHARED]) | words.map(ResourceName)
times = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**12), 10**12).map(float)
whole = st.none() | st.integers(-1, 9)
holds = st.builds(
    Hold,
    resource=names,
    id=ids,
    gpu=st.none() | gpus,
    identity=st.sampled_from(Identity),
    numa=st.lists(st.integers(-2, 9), max_size=2).map(tuple),
    since=times,
    pod=st.none() | st.builds(PodRef, words, words),
    pod_uid=st.none() | words,
    ours=st.booleans(),
    grant=st.integers(0, 5),
    pod_seen=st.booleans(),
    suspended=st.booleans(),
)
conditions = st.builds(
    Condition,
    fault=st.sampled_from(FaultClass),
    reason=words,
    message=words,
    placement=st.builds(Placement, gi=whole, ci=whole),
    xid=st.none() | st.integers(-1, 10**6),
    since=times,
    last=times,
    count=st.integers(-5, 10**6),
    boot=st.sampled_from(["boot", "", "other"]),
    needs_person=st.booleans(),
)
memories = st.builds(
    Memory,
    config_text=st.sampled_from(["", "version: v1\n", "version: v9\n", "\0"]) | words,
    config_digest=words,
    config_path=words,
    holds=st.lists(holds, max_size=5).map(tuple),
    freed=st.lists(st.tuples(st.builds(HoldKey, names, ids), words), max_size=3).map(tuple),
    conditions=st.dictionaries(gpus, st.lists(conditions, max_size=3).map(tuple), max_size=3),
    relapses=st.dictionaries(gpus, st.lists(times, max_size=4).map(tuple), max_size=3),
    pci=st.dictionaries(gpus, words.map(PciAddress), max_size=3),
    kubelet=st.none() | st.builds(SocketIdentity, st.integers(0, 3), st.integers(0, 3)),
)


@bounded
@given(memories)
def test_any_memory_of_the_right_shape_is_lived_with(kept: Memory) -> None:
    lives_on(msgspec.json.encode(kept))


leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words


@bounded
@given(st.recursive(leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)))
def test_any_other_json_is_set_aside_with_a_word(value: object) -> None:
    fact = recall(json.dumps(value).encode(), reparse)
    assert bool(fact.problem) != isinstance(value, dict)
    lives_on(json.dumps(value).encode())


@bounded
@given(memories, st.data())
def test_json_with_one_part_of_another_kind_is_set_aside_with_a_word(kept: Memory, data: st.DataObject) -> None:
    document = json.loads(msgspec.json.encode(kept))
    document[data.draw(st.sampled_from(sorted(document)))] = data.draw(leaf)
    lives_on(json.dumps(document).encode())


@bounded
@given(st.binary(max_size=100))
def test_any_bytes_are_set_aside_with_a_word(data: bytes) -> None:
    assert recall(data, reparse).problem
    lives_on(data)


@bounded
@given(memories, st.data())
def test_half_a_file_is_set_aside_with_a_word(kept: Memory, data: st.DataObject) -> None:
    written = msgspec.json.encode(kept)
    half = written[: data.draw(st.integers(0, len(written) - 1))]
    assert recall(half, reparse).problem
    lives_on(half)


def test_nesting_without_end_is_set_aside_with_a_word() -> None:
    lives_on(b'{"holds":' + b"[" * 100_000)
