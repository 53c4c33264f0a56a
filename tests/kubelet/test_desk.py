"""The transport-free desk: latest value streams, numbered grants, the guard between identities."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor.kubelet.desk import Desk, Stream
from reactor.model.ids import ResourceName, device_id
from reactor.model.kubelet import Refusal, StreamId
from reactor.model.snapshot import Offer, Snapshot
from tests.kubelet.fakes import GPU, Log, answer, desk, group, offer, snapshot, uuid

OTHER = ResourceName("nvidia.com/gpu.shared")


def test_a_stream_begins_with_the_list_in_force() -> None:
    one, log = desk()
    one.post(snapshot(offer(group(0))))
    stream = one.open(GPU, "a.sock")
    taken = stream.take()
    assert taken is not None
    assert taken.revision == 1
    assert stream.take() is None
    assert log.lines == [("opened", GPU, "a.sock", StreamId(1))]


def test_a_stream_opened_before_its_offer_waits_for_it() -> None:
    one, _ = desk()
    woken: list[int] = []
    stream = one.open(GPU, "a.sock", lambda: woken.append(1))
    assert stream.take() is None
    one.post(snapshot(offer(group(0))))
    assert woken == [1]
    assert stream.take() is not None


def test_only_the_newest_list_is_taken() -> None:
    one, _ = desk()
    stream = one.open(GPU, "a.sock")
    for revision in range(1, 6):
        one.post(snapshot(offer(group(0, healthy=revision % 2 == 0), revision=revision)))
    taken = stream.take()
    assert taken is not None
    assert taken.revision == 5
    assert stream.take() is None


def test_every_stream_of_a_resource_gets_each_newest_list() -> None:
    """KBL-14"""
    one, _ = desk()
    streams = [one.open(GPU, "a.sock"), one.open(GPU, "a.sock")]
    one.post(snapshot(offer(group(0))))
    first = [stream.take() for stream in streams]
    one.post(snapshot(offer(group(0, healthy=False), revision=2)))
    second = [stream.take() for stream in streams]
    assert [taken.revision for taken in first if taken] == [1, 1]
    assert [taken.revision for taken in second if taken] == [2, 2]


def test_a_change_of_one_resource_wakes_no_stream_of_another() -> None:
    one, _ = desk()
    woken: list[ResourceName] = []
    for resource in (GPU, OTHER):
        one.open(resource, "a.sock", lambda resource=resource: woken.append(resource))
    same = offer(group(0))
    one.post(snapshot(same, offer(group(1), resource=OTHER)))
    for stream in one.streams:
        stream.take()
    woken.clear()
    one.post(snapshot(same, offer(group(1, healthy=False), resource=OTHER, revision=2)))
    assert woken == [OTHER]


def test_an_equal_list_in_a_new_object_is_not_sent_again() -> None:
    one, _ = desk()
    stream = one.open(GPU, "a.sock")
    one.post(snapshot(offer(group(0))))
    stream.take()
    one.post(snapshot(offer(group(0))))
    assert stream.take() is None


def test_a_nudge_sends_an_unchanged_list_again() -> None:
    one, _ = desk()
    stream = one.open(GPU, "a.sock")
    one.post(snapshot(offer(group(0))))
    stream.take()
    one.post(snapshot(offer(group(0), nudge=1)))
    taken = stream.take()
    assert taken is not None
    assert taken.nudge == 1


def test_what_was_sent_is_reported_with_its_counts() -> None:
    one, log = desk()
    stream = one.open(GPU, "a.sock")
    content = offer(group(0, replicas=4), group(1, replicas=4, healthy=False), revision=7, nudge=2)
    one.post(snapshot(content))
    stream.take()
    stream.sent(content, 321)
    assert log.lines[-1] == ("sent", GPU, stream.id, 7, 2, 4, 4, 321)


def test_a_list_that_would_read_the_same_stands() -> None:
    """A reason or an index that changed concerns Allocate only, and the kubelet takes a list for a set."""
    one, log = desk()
    woken: list[int] = []
    stream = one.open(GPU, "a.sock", lambda: woken.append(1))
    sick = group(0, replicas=2, healthy=False)
    one.post(snapshot(offer(group(1), sick, revision=1)))
    content = stream.take()
    assert content is not None
    stream.sent(content, 50)
    woken.clear()
    reworded = tuple(msgspec.structs.replace(listed, reason="another", index=3) for listed in sick)
    one.post(snapshot(offer(reworded, group(1), revision=4)))
    assert (stream.take(), woken) == (None, [])
    assert log.lines[-1] == ("standing", GPU, stream.id, 4, 0, 1, 2, 50)
    one.post(snapshot(offer(reworded, group(1), revision=4, nudge=1)))
    assert stream.take() is not None


@pytest.mark.parametrize(
    "after",
    [
        offer(group(0, healthy=False), group(1), revision=2),
        offer(group(0), group(1, numa=(1,)), revision=2),
        offer(group(0), group(1, replicas=1), revision=2),
        offer(group(0), revision=2),
        offer(group(0), group(2), revision=2),
        offer(group(0), group(1), revision=2, topology=True),
        offer(group(0), group(1), revision=2, nudge=1),
    ],
)
def test_a_list_that_would_read_otherwise_goes_out(after: Offer) -> None:
    one, _ = desk()
    stream = one.open(GPU, "a.sock")
    one.post(snapshot(offer(group(0), group(1))))
    content = stream.take()
    assert content is not None
    stream.sent(content, 50)
    one.post(snapshot(after))
    assert stream.take() is after


def test_a_list_on_its_way_does_not_stand_yet() -> None:
    """A slow reader has not got it: what is told of the newer one must not come before it."""
    one, log = desk()
    stream = one.open(GPU, "a.sock")
    one.post(snapshot(offer(group(0))))
    assert stream.take() is not None
    newer = offer(group(0), revision=2)
    one.post(snapshot(newer))
    assert [line[0] for line in log.lines] == ["opened"]
    assert stream.take() is newer


def test_the_end_of_a_stream_is_reported_once_and_ends_its_wakes() -> None:
    one, log = desk()
    woken: list[int] = []
    stream = one.open(GPU, "a.sock", lambda: woken.append(1))
    stream.close()
    stream.close()
    one.post(snapshot(offer(group(0))))
    assert woken == []
    assert [line[0] for line in log.lines] == ["opened", "ended"]


def test_grants_are_numbered_in_the_order_of_the_answers() -> None:
    one, log = desk()
    one.post(snapshot(offer(group(0), group(1))))
    for index in (0, 1):
        one.allocate(GPU, [[device_id(uuid(index))]])
    assert [line[:2] for line in log.lines] == [("granted", 1), ("granted", 2)]


def test_a_repeated_allocate_gets_the_same_answer() -> None:
    """KBL-12"""
    one, _ = desk()
    one.post(snapshot(offer(group(0))))
    assert one.allocate(GPU, [[device_id(uuid(0))]]) == one.allocate(GPU, [[device_id(uuid(0))]])


def test_a_refusal_is_reported_and_takes_no_number() -> None:
    one, log = desk()
    one.post(snapshot(offer(group(0, healthy=False), group(1))))
    refused = one.allocate(GPU, [[device_id(uuid(0))]])
    assert isinstance(refused, Refusal)
    one.allocate(GPU, [[device_id(uuid(1))]])
    bad = device_id(uuid(0))
    assert log.lines == [
        ("refused", GPU, (bad,), f"{bad} is not healthy", (bad,)),
        ("granted", 1, GPU, (device_id(uuid(1)),)),
    ]


def test_a_gpu_granted_whole_is_refused_as_shares_until_the_grant_is_folded_in() -> None:
    one, _ = desk()
    one.post(snapshot(offer(group(0), group(0, replicas=2))))
    assert not isinstance(one.allocate(GPU, [[device_id(uuid(0))]]), Refusal)
    share = [[device_id(uuid(0), 1)]]
    assert isinstance(one.allocate(GPU, share), Refusal)
    one.post(snapshot(offer(group(0), group(0, replicas=2), revision=2), grants=0))
    assert isinstance(one.allocate(GPU, share), Refusal)
    one.post(snapshot(offer(group(0), group(0, replicas=2), revision=3), grants=1))
    assert not isinstance(one.allocate(GPU, share), Refusal)


def test_the_guard_holds_across_resources_and_leaves_other_gpus_alone() -> None:
    one, _ = desk()
    one.post(snapshot(offer(group(0)), offer(group(0, replicas=2), group(1, replicas=2), resource=OTHER)))
    one.allocate(GPU, [[device_id(uuid(0))]])
    assert isinstance(one.allocate(OTHER, [[device_id(uuid(0), 0)]]), Refusal)
    assert not isinstance(one.allocate(OTHER, [[device_id(uuid(1), 0)]]), Refusal)


def test_shares_of_one_gpu_do_not_guard_against_each_other() -> None:
    one, _ = desk()
    one.post(snapshot(offer(group(0, replicas=2))))
    one.allocate(GPU, [[device_id(uuid(0), 0)]])
    assert not isinstance(one.allocate(GPU, [[device_id(uuid(0), 1)]]), Refusal)


def test_without_the_guard_identities_may_mix() -> None:
    one, _ = desk()
    one.post(snapshot(offer(group(0), group(0, replicas=2)), guard=False))
    one.allocate(GPU, [[device_id(uuid(0))]])
    assert not isinstance(one.allocate(GPU, [[device_id(uuid(0), 0)]]), Refusal)


def test_a_preference_that_fails_is_no_preference(caplog: pytest.LogCaptureFixture) -> None:
    def broken(
        snap: Snapshot, resource: ResourceName, available: Sequence[str], must: Sequence[str], size: int
    ) -> tuple[str, ...]:
        raise KeyError("gone")

    one = Desk(answer=answer, prefer=broken, reports=Log())
    with caplog.at_level(logging.CRITICAL):
        assert one.preferred(GPU, ["a"], [], 1) == ()


Step = tuple[str, int]


@given(st.lists(st.tuples(st.sampled_from(["post", "open", "take", "close"]), st.integers(0, 3)), max_size=40))
def test_every_live_stream_ends_with_the_newest_list_and_never_goes_back(steps: list[Step]) -> None:
    one, log = desk()
    streams: list[Stream] = []
    taken: dict[Stream, list[int]] = {}

    def take(stream: Stream) -> None:
        got = stream.take()
        if got is not None:
            taken[stream].append(got.revision)

    revision = 0
    for action, number in steps:
        if action == "post":
            revision += 1
            one.post(snapshot(offer(group(0, healthy=number % 2 == 0), revision=revision)))
        elif action == "open":
            streams.append(one.open(GPU, "a.sock"))
            taken[streams[-1]] = []
        elif streams and action == "take":
            take(streams[number % len(streams)])
        elif streams:
            streams[number % len(streams)].close()
    for stream in one.streams:
        take(stream)
        assert taken[stream][-1:] == ([revision] if revision else [])
    for revisions in taken.values():
        assert revisions == sorted(set(revisions))
    assert [line[0] for line in log.lines].count("ended") == len(streams) - len(one.streams)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.sampled_from([None, 0, 1])), max_size=30))
def test_no_gpu_is_granted_under_two_identities_before_the_first_is_folded_in(
    steps: list[tuple[bool, int, int | None]],
) -> None:
    one, log = desk()
    groups = [group(index) for index in (0, 1)] + [group(index, replicas=2) for index in (0, 1)]
    one.post(snapshot(offer(*groups)))
    unfolded: dict[int, set[bool]] = {}
    for fold, index, share in steps:
        if fold:
            granted = sum(line[0] == "granted" for line in log.lines)
            one.post(snapshot(offer(*groups), grants=granted))
            unfolded.clear()
        outcome = one.allocate(GPU, [[device_id(uuid(index), share)]])
        if not isinstance(outcome, Refusal):
            unfolded.setdefault(index, set()).add(share is None)
        assert all(len(identities) == 1 for identities in unfolded.values())


def test_a_report_that_is_owed_comes_before_any_other() -> None:
    one, log = desk()
    one.post(snapshot(offer(group(0))))
    owed: list[bool] = []
    for _ in range(2):
        one.allocate(GPU, [[device_id(uuid(0))]], lambda report: owed.append(one.owe(lambda: report(0.5))))
    assert owed == [True, False], "whoever is the first sees to it that both are told"
    assert log.lines == []
    one.open(GPU, "a.sock")
    assert [line[0] for line in log.lines] == ["granted", "granted", "opened"]
    one.settle()
    assert len(log.lines) == 3
