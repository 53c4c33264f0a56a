"""What a change costs, in calls: all ids once where all are asked about, and one GPU's ids where one GPU changed."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from reactor import plan, view
from reactor.kubelet.encode import ListEncoder
from reactor.status.describe import describe
from tests.reducer.world import GPU, config
from tests.scale.node import GPUS, Big, effort

FEW, MANY = 100, 1000
"""Replicas of each GPU: ten times as many ids may cost ten times as much, and a little."""
LINEAR = 11
MOST = 3750
"""60 000 ids, about what the kubelet takes."""


@pytest.fixture(scope="module")
def sizes() -> tuple[Big, Big]:
    return Big(FEW), Big(MANY)


@pytest.fixture(scope="module")
def most() -> Big:
    return Big(MOST)


def whole_view(world: Big) -> object:
    return view.snapshot(world.state)


def whole_list(world: Big) -> object:
    return ListEncoder().encode(world.offer())


def preference(world: Big) -> object:
    return world.desk.preferred(GPU, world.ids(), [], 8)


def allocation_of_all(world: Big) -> object:
    return world.desk.allocate(GPU, [world.ids()])


def document(world: Big) -> object:
    return describe(world.state, world.snapshot)


@pytest.mark.parametrize("work", [whole_view, whole_list, preference, allocation_of_all, document])
def test_what_asks_about_every_id_is_linear(sizes: tuple[Big, Big], most: Big, work: Callable[[Big], object]) -> None:
    few, many = (effort(lambda world=world: work(world)) for world in sizes)
    assert many <= LINEAR * few
    assert effort(lambda: work(most)) <= 1.1 * MOST / MANY * many


def test_a_plan_costs_its_gpus_and_not_their_replicas() -> None:
    few, many = (effort(lambda n=n: plan.make_plan(config(n), GPUS)) for n in (FEW, MOST))
    assert many <= few + 40 * len(GPUS), "one more digit to measure for each GPU"


def test_one_fault_costs_the_ids_of_its_gpu(sizes: tuple[Big, Big]) -> None:
    _, world = sizes
    world.xid(0)  # what is worked out once is worked out
    calls = effort(lambda: world.xid(1))
    assert calls <= 12 * MANY, "sixteen times as many ids are listed"
    assert effort(lambda: world.clear(1)) <= 12 * MANY
    world.clear(0)


def test_a_fault_leaves_the_groups_of_other_gpus_the_same_objects(sizes: tuple[Big, Big]) -> None:
    _, world = sizes
    before = world.offer().groups
    world.xid(5)
    moved = [n for n, (old, new) in enumerate(zip(before, world.offer().groups, strict=True)) if old is not new]
    assert moved == [5]
    world.clear(5)


def test_a_grant_costs_nothing_of_the_ids_that_are_listed(sizes: tuple[Big, Big]) -> None:
    def grant(world: Big) -> None:
        (one,) = world.ids()[-1:]
        world.desk.allocate(GPU, [[one]])  # the first look-up in a group makes its index

        def work() -> None:
            world.desk.allocate(GPU, [[one]])
            world.grant(one)
            world.deliver()

        calls.append(effort(work))

    calls: list[int] = []
    for world in sizes:
        grant(world)
    assert calls[1] <= calls[0] + 50


def test_books_that_repeat_themselves_make_nothing_anew() -> None:
    world, holds = Big(MANY), 400
    books = world.books(holds)
    world.read(books)
    before = world.state.holds
    again = effort(lambda: world.read(books))
    assert world.state.holds is before
    assert again <= 30 * holds, "no hold is copied"
    assert effort(world.send) <= 6 * holds, "a list that went out asks each hold a little"


def test_an_edit_that_drops_half_of_the_ids_is_linear() -> None:
    def drop(replicas: int) -> int:
        world = Big(replicas)
        world.read(world.books(replicas // 5))

        def work() -> None:
            world.config(replicas // 2)
            world.deliver()
            world.deadline("leaving")
            world.deliver()

        calls = effort(work)
        assert len(world.state.leaving) <= replicas // 5
        return calls

    assert drop(10 * 50) <= LINEAR * drop(50)


def test_flapping_makes_no_second_copy_of_what_is_listed(sizes: tuple[Big, Big]) -> None:
    """A cache of lists that were would grow by 1000 ids with each word of a driver."""
    _, world = sizes

    def kept() -> int:
        gc.collect()
        return sum(len(each) for each in gc.get_objects() if type(each).__name__ == "Group")

    before = kept()
    for number in range(16):
        world.xid(number)
        world.clear(number)
    assert kept() <= before + MANY
