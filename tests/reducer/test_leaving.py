"""Ids that the plan drops: how long they stay, and what must not be handed out meanwhile."""

from __future__ import annotations

from reactor import events as e
from reactor.model.config import HoldsPolicy
from reactor.model.gpu import DriverState
from reactor.model.hold import Hold
from reactor.model.ids import Identity
from reactor.model.snapshot import Snapshot
from reactor.state import State
from tests.reducer.world import GPU, SHARED, WHOLE_A, WHOLE_B, A, B, World, config, gpu, share


def shares(*numbers: int, of: str = "ab", healthy: bool = True) -> dict[str, bool]:
    uuids = {"a": A, "b": B}
    return {share(uuids[letter], number): healthy for letter in of for number in numbers}


def test_an_id_leaves_five_seconds_after_it_was_sent_unhealthy() -> None:
    world = World()
    world.config(2)
    assert world.listed() == {WHOLE_A: False, WHOLE_B: False} | shares(0, 1)
    world.now += 60
    world.pods()  # time alone is nothing: the list was not sent yet
    assert WHOLE_A in world.listed()
    world.send()
    world.deadline("leaving")
    assert world.listed() == shares(0, 1)


def test_without_a_stream_an_id_leaves_at_once() -> None:
    world = World()
    plugin = world.state.kubelet.plugins[GPU]
    world.tell(e.StreamEnded(resource=GPU, socket=plugin.socket, stream=min(plugin.streams)))
    world.config(2)
    assert world.listed() == shares(0, 1)


def test_a_refusal_starts_the_five_seconds_again() -> None:
    world = World()
    world.config(2)
    world.send()
    world.now += 4
    world.tell(e.Refused(resource=GPU, ids=(WHOLE_A,), message="is no longer offered"))
    world.deadline("leaving")
    assert WHOLE_A in world.listed()
    assert WHOLE_B not in world.listed()
    world.deadline("leaving")
    assert WHOLE_A not in world.listed()


def test_a_gpu_that_a_pod_owns_whole_is_not_shared_until_the_pod_ends() -> None:
    world = World()
    world.grant(WHOLE_A)
    world.pods(WHOLE_A)
    world.checkpoint(WHOLE_A)
    world.config(2)
    world.send()
    world.deadline("leaving")
    world.now += 60
    world.pods(WHOLE_A)
    world.checkpoint(WHOLE_A)
    assert world.listed() == {WHOLE_A: False} | shares(0, 1, of="a", healthy=False) | shares(0, 1, of="b")
    world.pods()
    world.now += 2.1
    world.pods()
    assert world.listed() == shares(0, 1)


def test_holds_allow_does_as_the_peer_does() -> None:
    world = World()
    world.grant(WHOLE_A)
    world.pods(WHOLE_A)
    world.tell(e.ConfigRead(config=config(2, holds=HoldsPolicy.ALLOW), digest="allow"))
    assert world.listed() == {WHOLE_A: False, WHOLE_B: False} | shares(0, 1)


def test_a_grant_that_races_the_switch_withholds_the_shares() -> None:
    world = World()
    world.config(2)
    world.grant(WHOLE_A)  # answered from the snapshot before
    assert not world.listed()[share(A, 0)]
    assert world.listed()[share(B, 0)]


def test_fewer_replicas_keep_the_held_ones_until_they_are_free() -> None:
    """SHR-07"""
    world = World(replicas=4)
    world.grant(share(A, 2))
    world.pods(share(A, 2))
    world.checkpoint(share(A, 2))
    world.config(2)
    world.send()
    world.deadline("leaving")
    assert world.listed() == shares(0, 1) | {share(A, 2): False}
    world.pods()
    world.now += 2.1
    world.pods()
    assert world.listed() == shares(0, 1)


def test_a_renamed_resource_lists_a_held_id_in_its_old_place_only() -> None:
    world = World(replicas=2)
    world.grant(share(A, 0))
    world.pods(share(A, 0))
    world.checkpoint(share(A, 0))
    world.config(2, SHARED)
    world.serve(SHARED)
    world.send()
    assert world.listed() == shares(0, 1, healthy=False)
    assert world.listed(SHARED) == {}
    world.deadline("leaving")
    assert world.listed() == {share(A, 0): False}
    assert world.listed(SHARED) == {share(A, 1): True} | shares(0, 1, of="b")
    world.pods()
    world.now += 2.1
    world.pods()
    assert world.listed() == {}
    assert len(world.listed(SHARED)) == 4


def test_a_removed_resource_owes_an_empty_list_before_it_closes() -> None:
    world = World(replicas=2)
    world.config(2, SHARED)
    world.serve(SHARED)
    world.send()
    world.deadline("leaving")
    assert GPU in world.snapshot.offers
    assert len(world.offer()) == 0
    world.send()
    assert GPU not in world.snapshot.offers


def test_a_gpu_that_is_gone_is_listed_unhealthy_then_dropped() -> None:
    world = World()
    world.inventory(gpu(A, 0))
    assert world.listed() == {WHOLE_A: True, WHOLE_B: False}
    world.send()
    world.deadline("leaving")
    assert world.listed() == {WHOLE_A: True}


def test_a_gpu_that_is_gone_stays_listed_while_a_pod_holds_it() -> None:
    world = World()
    world.inventory(gpu(A, 0, numa=0), gpu(B, 1, numa=1))
    world.grant(WHOLE_B)
    world.pods(WHOLE_B)
    world.checkpoint(WHOLE_B)
    world.inventory(gpu(A, 0, numa=0))
    world.send()
    world.now += 3600
    world.pods(WHOLE_B)
    assert world.listed() == {WHOLE_A: True, WHOLE_B: False}
    assert world.offer().topology  # the tombstone keeps its NUMA node, so topology stays all or none


def test_a_plan_that_comes_back_takes_its_ids_back() -> None:
    world = World()
    world.config(2)
    world.send()
    world.config(0)
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True} | shares(0, 1, healthy=False)


def test_a_list_that_would_not_fit_leaves_the_old_ids_in_place() -> None:
    """CFG-09"""
    world = World(replicas=2)
    world.config(60_000)
    assert world.listed() == shares(0, 1)
    (fault,) = world.state.faults.values()
    assert "the largest number that fits is" in fault.message
    world.config(3)
    assert world.listed() == shares(0, 1, 2)
    assert not world.state.faults


def test_nothing_is_advertised_before_the_checkpoint_was_looked_at() -> None:
    world = World()
    world.state, world.snapshot = State(), Snapshot()
    world.config(2)
    world.inventory()
    assert not world.snapshot.offers
    world.tell(e.CheckpointFailed(error="no such file", missing=True))
    assert world.listed() == shares(0, 1)


def test_an_id_refused_for_its_own_fault_is_unhealthy_until_the_next_good_scan() -> None:
    world = World()
    world.tell(e.Refused(resource=GPU, ids=(WHOLE_A,), message="/dev/nvidia0 is missing", faulty=(WHOLE_A,)))
    assert world.listed() == {WHOLE_A: False, WHOLE_B: True}
    world.inventory()
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}


def test_an_unchanged_resource_keeps_its_very_offer() -> None:
    world = World()
    before = world.offer()
    world.tell(e.ConfigRead(config=config(holds=HoldsPolicy.ALLOW), digest="other"))
    world.inventory()
    assert world.offer() is before


def test_no_list_is_made_before_gpus_and_config_of_this_life_are_known() -> None:
    """An agent that begins again must not take away what it is about to offer."""
    hold = Hold(resource=GPU, id=WHOLE_A, gpu=A, identity=Identity.WHOLE, since=1.0)
    world = World()
    world.state, world.snapshot = State(), Snapshot()
    world.tell(e.StateRestored(config=config(2), config_digest="old", holds=(hold,)))
    world.checkpoint(WHOLE_A)
    assert not world.snapshot.offers
    world.inventory()
    assert not world.snapshot.offers
    world.tell(e.ConfigRejected(digest="bad", path="config.yaml", problems=()))
    assert world.listed() == {WHOLE_A: False} | shares(0, 1, of="a", healthy=False) | shares(0, 1, of="b")


def test_a_driver_that_hangs_from_the_start_keeps_held_ids_listed() -> None:
    hold = Hold(resource=GPU, id=WHOLE_A, gpu=A, identity=Identity.WHOLE, since=1.0)
    world = World()
    world.state, world.snapshot = State(), Snapshot()
    world.tell(e.StateRestored(holds=(hold,)))
    world.config()
    world.checkpoint(WHOLE_A)
    world.tell(e.InventoryFailed(state=DriverState.HUNG, error="no answer within 120 s"))
    assert world.listed() == {WHOLE_A: False}


def test_a_pod_that_the_books_told_of_before_any_plan_keeps_its_id_listed_through_a_rename() -> None:
    world = World()
    world.state, world.snapshot = State(), Snapshot()
    world.tell(e.AgentStarted(version="1", run="r", boot="boot"))
    world.checkpoint(WHOLE_A)
    world.pods(WHOLE_A)
    world.config()
    world.inventory()
    world.config(2, SHARED)  # nothing was served yet
    assert world.listed() == {WHOLE_A: False}
    assert world.listed(SHARED) == shares(0, 1, of="a", healthy=False) | shares(0, 1, of="b")


def test_a_rename_taken_back_at_once_drops_no_id() -> None:
    """The ids were never listed under the other name, so nothing has to leave it before they are here again."""
    world = World(replicas=2)
    world.grant(share(A, 0))
    world.config(2, SHARED)
    world.serve(SHARED)
    assert world.listed() == shares(0, 1, healthy=False)
    assert not world.listed(SHARED)
    world.config(2)
    assert world.listed() == shares(0, 1)
    assert not world.listed(SHARED)
