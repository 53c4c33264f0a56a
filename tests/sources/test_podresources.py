"""Rounds of List and checkpoint: when they are asked, in which order, and what a failure leaves standing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from reactor.events import CheckpointFailed, CheckpointRead, PodsListed, PodsListFailed
from reactor.model.errors import Refused, Transient
from reactor.model.hold import Checkpoint, PodDevices
from reactor.model.value import replace
from reactor.sources.podresources import PodResourcesSource
from reactor.state import State
from tests.sources.kubelet_world import World


class Books:
    def __init__(self) -> None:
        self.world = World()
        self.list_fails: Exception | None = None
        self.checkpoint_fails: Exception | None = None
        self.waiting = False
        self.slow = 0.0
        self.asked: list[tuple[str, float]] = []

    async def read_list(self) -> tuple[PodDevices, ...]:
        self.asked.append(("list", trio.current_time()))
        await trio.sleep(self.slow)
        if self.list_fails is not None:
            raise self.list_fails
        return ()

    async def read_checkpoint(self) -> Checkpoint:
        self.asked.append(("checkpoint", trio.current_time()))
        if self.checkpoint_fails is not None:
            raise self.checkpoint_fails
        return Checkpoint(entries=())

    def wants(self, state: State) -> bool:
        return self.waiting

    def granted(self) -> None:
        self.world.set(replace(self.world.state, grants=self.world.state.grants + 1))

    def lists(self) -> list[float]:
        return [at for what, at in self.asked if what == "list"]


@asynccontextmanager
async def running(books: Books) -> AsyncIterator[Books]:
    world = books.world
    source = PodResourcesSource(
        books.read_list,
        books.read_checkpoint,
        publish=world.publish,
        until=world.until,
        state=lambda: world.state,
        wants=books.wants,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(source.run)
        yield books
        nursery.cancel_scope.cancel()


async def test_the_checkpoint_comes_first_and_after_each_list(autojump_clock: MockClock) -> None:
    async with running(Books()) as books:
        await trio.sleep(31)
    assert [what for what, _ in books.asked] == ["checkpoint", "list", "checkpoint", "list", "checkpoint"]


async def test_nothing_waits_then_a_round_every_30_seconds(autojump_clock: MockClock) -> None:
    async with running(Books()) as books:
        begun = trio.current_time()
        await trio.sleep(95)
    assert [at - begun for at in books.lists()] == [0, 30, 60, 90]


async def test_while_something_waits_a_round_each_second(autojump_clock: MockClock) -> None:
    books = Books()
    books.waiting = True
    async with running(books):
        begun = trio.current_time()
        await trio.sleep(4.5)
    assert [at - begun for at in books.lists()] == [0, 1, 2, 3, 4]


async def test_a_grant_has_the_books_read_soon_and_many_at_most_once_a_second(autojump_clock: MockClock) -> None:
    async with running(Books()) as books:
        await trio.sleep(10)
        begun = trio.current_time()
        for _ in range(20):
            books.granted()
            await trio.sleep(0.1)
        await trio.sleep(5)
    assert [round(at - begun, 1) for at in books.lists()[1:]] == [0, 1, 2]


async def test_a_grant_during_a_round_is_not_missed(autojump_clock: MockClock) -> None:
    books = Books()
    books.slow = 0.5
    async with running(books):
        begun = trio.current_time()
        await trio.sleep(0.2)
        books.granted()
        await trio.sleep(3)
    assert [at - begun for at in books.lists()] == [0, 1]


async def test_a_new_life_of_the_kubelet_has_the_books_read(autojump_clock: MockClock) -> None:
    async with running(Books()) as books:
        await trio.sleep(10)
        begun = trio.current_time()
        kubelet = replace(books.world.state.kubelet, life=books.world.state.kubelet.life + 1)
        books.world.set(replace(books.world.state, kubelet=kubelet))
        await trio.sleep(2)
    assert [at - begun for at in books.lists()[1:]] == [0]


async def test_each_reading_tells_when_it_was_asked(autojump_clock: MockClock) -> None:
    books = Books()
    books.slow = 3
    async with running(books):
        begun = trio.current_time()
        await trio.sleep(3.5)
    listed = next(fact for fact in books.world.facts if isinstance(fact, PodsListed))
    read = [fact for fact in books.world.facts if isinstance(fact, CheckpointRead)]
    assert listed.asked_at == begun
    assert [fact.asked_at - begun for fact in read] == [0, 3]


async def test_a_list_that_fails_leaves_the_checkpoint_read(autojump_clock: MockClock) -> None:
    books = Books()
    books.list_fails = Transient("listing pods: no answer in time")
    async with running(books):
        await trio.sleep(0.5)
    assert [type(fact) for fact in books.world.facts] == [CheckpointRead, PodsListFailed, CheckpointRead]
    assert books.world.facts[1] == PodsListFailed(error="listing pods: no answer in time")


async def test_a_missing_checkpoint_is_told_apart_from_a_broken_one(autojump_clock: MockClock) -> None:
    """KBL-18"""
    books = Books()
    books.checkpoint_fails = Transient("gone")
    books.checkpoint_fails.__cause__ = FileNotFoundError()
    async with running(books):
        await trio.sleep(0.5)
        books.checkpoint_fails = Refused("cut off")
        await trio.sleep(30)
    assert [fact for fact in books.world.facts if isinstance(fact, CheckpointFailed)] == [
        CheckpointFailed(error="gone", missing=True),
        CheckpointFailed(error="gone", missing=True),
        CheckpointFailed(error="cut off", missing=False),
    ]
