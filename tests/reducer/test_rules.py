"""The config says what XIDs mean, live: faults that are none any more go, nothing is judged anew."""

from __future__ import annotations

from reactor import events as e
from reactor.config import Accepted, parse
from reactor.model.condition import WHOLE_GPU, Policy
from reactor.model.value import replace
from tests.reducer.world import WHOLE_A, WHOLE_B, A, World


def config(world: World, text: str) -> None:
    read = parse(text.encode(), path="c.yaml")
    assert isinstance(read, Accepted), read
    world.tell(e.ConfigRead(config=read.config, digest=read.digest))


def xid(world: World, code: int) -> None:
    world.tell(e.XidReported(gpu=A, placement=WHOLE_GPU, xid=code))


def test_an_xid_means_what_the_config_says() -> None:
    world = World()
    config(world, "health: {xids: {reset: [13], ignore: [79]}}")
    xid(world, 79)
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}
    xid(world, 13)
    assert world.listed() == {WHOLE_A: False, WHOLE_B: True}


def test_a_fault_that_is_none_any_more_is_lifted_and_counts_as_no_relapse() -> None:
    world = World()
    xid(world, 79)
    assert not world.listed()[WHOLE_A]
    config(world, "health: {xids: {application: [79]}}")
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}
    assert world.state.relapses == {}
    config(world, "version: v1")
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}, "nothing is judged anew"


def test_a_fault_of_another_class_stays_as_it_was_judged() -> None:
    world = World()
    xid(world, 79)
    (before,) = world.state.conditions[A]
    config(world, "health: {classes: {restart: unknown}, xids: {ignore: [48]}}")
    assert world.state.conditions[A] == (before,)


def test_a_whole_class_can_be_silenced() -> None:
    """HLT-32"""
    world = World()
    xid(world, 999)
    config(world, "health: {classes: {unknown: ignore}}")
    xid(world, 998)
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}


def test_a_double_bit_error_goes_with_the_class_of_its_xid() -> None:
    world = World()
    world.tell(e.EccReported(gpu=A, placement=WHOLE_GPU))
    assert not world.listed()[WHOLE_A]
    config(world, "health: {xids: {ignore: [48]}}")
    assert world.listed()[WHOLE_A]


def test_the_environment_goes_before_the_config() -> None:
    world = World()
    world.state = replace(world.state, environment=Policy(disabled=frozenset({79})))
    config(world, "health: {xids: {reset: [79, 13]}}")
    xid(world, 79)
    assert world.listed()[WHOLE_A]
    xid(world, 13)
    assert not world.listed()[WHOLE_A]


def test_a_shorter_quiet_time_counts_for_what_waits_already() -> None:
    world = World()
    xid(world, 999)
    assert world.state.deadlines["quiet"] > world.now + 59
    config(world, "health: {quietTimes: {unknown: 10s}}")
    world.deadline("quiet")
    world.inventory()
    assert world.listed()[WHOLE_A]


def test_without_an_end_of_the_quiet_time_a_fault_waits_for_no_time() -> None:
    world = World()
    xid(world, 999)
    config(world, "health: {quietTimes: {unknown: infinite}}")
    assert "quiet" not in world.state.deadlines
    world.tell(e.DeadlinePassed(name="resync"), after=1e6)
    world.inventory()
    assert not world.listed()[WHOLE_A]


def test_with_a_limit_of_0_no_fault_needs_a_person() -> None:
    world = World()
    config(world, "health: {relapses: {limit: 0}, quietTimes: {unknown: 1s}}")
    for _ in range(6):
        xid(world, 999)
        world.tell(e.DeadlinePassed(name="quiet"), after=2)
        world.inventory()
        assert world.listed()[WHOLE_A]


def test_a_config_of_an_earlier_life_says_what_xids_mean_until_it_is_read_again() -> None:
    world = World()
    read = parse(b"health: {xids: {ignore: [79]}}", path="c.yaml")
    assert isinstance(read, Accepted)
    world.state = replace(world.state, config=replace(world.state.config, config=None))
    world.tell(e.StateRestored(config=read.config, config_digest=read.digest, config_text=read.text))
    xid(world, 79)
    assert A not in world.state.conditions
