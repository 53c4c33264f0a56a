"""When a hold begins and, above all, when it ends: the three rules of design.md 5, and what must not end it."""

from __future__ import annotations

import msgspec

from reactor import events as e
from reactor import view
from reactor.allocate import answer, prefer
from reactor.handlers.remember import memory, recall
from reactor.model.config import HoldsPolicy
from reactor.model.hold import Hold, PodDevices
from reactor.model.ids import DeviceId, Identity, ResourceName
from reactor.model.kubelet import Refusal, SocketIdentity
from reactor.model.value import replace
from tests.reducer.world import GPU, POD, WHOLE_A, WHOLE_B, A, B, World, key, share

BARE = PodDevices(pod=POD, devices=())
"""The pod is listed, without devices."""


def running(*ids: DeviceId, replicas: int = 0) -> World:
    """A pod holds these ids, and the kubelet's books have shown it."""
    world = World(replicas=replicas)
    world.grant(*ids)
    world.pods(*ids)
    world.now += 1.1  # after a list: the kubelet has written this checkpoint itself
    world.checkpoint(*ids)
    return world


def test_a_grant_is_a_hold_at_once() -> None:
    world = World()
    world.grant(WHOLE_A)
    assert world.held() == {WHOLE_A}
    assert world.state.holds[key(WHOLE_A)].granted_at == world.now


def test_what_the_kubelets_books_show_is_a_hold_too() -> None:
    world = World()
    world.pods(WHOLE_A)
    world.checkpoint(WHOLE_A, WHOLE_B)
    assert world.held() == {WHOLE_A, WHOLE_B}
    assert world.state.holds[key(WHOLE_B)].pod == POD  # the same pod UID


def test_ids_of_other_vendors_are_none_of_our_business() -> None:
    world = World()
    world.checkpoint(DeviceId("0000:3b:00.1"), resource=ResourceName("mellanox.com/vf"))
    assert not world.state.holds


def test_a_foreign_id_of_a_resource_that_we_serve_stays_listed() -> None:
    """The kubelet panics if an id that a running pod has is missing, whoever gave it (spec/kubelet.md 14)."""
    world = World()
    world.checkpoint(DeviceId("nvidia0"))
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True, "nvidia0": False}


def test_rule_1_frees_after_a_list_was_sent_a_second_after_the_pod_was_gone() -> None:
    world = running(WHOLE_A)
    world.pods()  # the List lacks it
    world.checkpoint(WHOLE_A)  # stale until a list is sent
    world.now += 1.1
    world.pods()
    nudge = world.offer().nudge
    assert nudge == 1  # the unchanged list is sent again
    world.send()
    world.now += 0.1
    world.checkpoint()
    assert not world.held()


def test_rule_1_waits_for_the_list_where_this_life_never_wrote_the_id_down() -> None:
    """An agent that begins again knows of a pod that may have ended meanwhile."""
    world = World()
    hold = Hold(resource=GPU, id=WHOLE_A, gpu=A, identity=Identity.WHOLE, since=1.0, pod=POD)
    world.tell(e.StateRestored(holds=(hold,), kubelet=SocketIdentity(1, 1)))
    world.pods()
    world.now += 1.1
    world.pods()
    world.checkpoint()
    assert world.held() == {WHOLE_A}  # not yet: nothing was sent since
    world.send()
    world.now += 0.1
    world.checkpoint()
    assert not world.held()


def test_a_checkpoint_read_before_the_list_was_sent_frees_nobody() -> None:
    world = World()
    hold = Hold(resource=GPU, id=WHOLE_A, gpu=A, identity=Identity.WHOLE, since=1.0, pod=POD)
    world.tell(e.StateRestored(holds=(hold,), kubelet=SocketIdentity(1, 1)))
    world.pods()
    world.now += 1.1
    world.pods()
    asked = world.now
    world.now += 0.1
    world.send()
    world.tell(e.CheckpointRead(entries=(), asked_at=asked))
    assert world.held() == {WHOLE_A}


def test_rule_2_frees_on_a_kubelet_that_leaves_its_checkpoint_stale() -> None:
    world = running(WHOLE_A)
    world.pods()
    world.checkpoint(WHOLE_A)
    world.now += 1.9
    world.pods()
    assert world.held() == {WHOLE_A}
    world.now += 0.2
    world.pods()
    assert not world.held()


def test_a_stale_checkpoint_entry_of_a_pod_that_ended_holds_nothing() -> None:
    """A kubelet 1.29 keeps it until its next Allocate."""
    world = running(WHOLE_A)
    world.pods()
    world.checkpoint(WHOLE_A)
    world.now += 2.1
    world.pods()
    world.checkpoint(WHOLE_A)
    assert not world.held()
    world.checkpoint(WHOLE_A, uid="next")  # the next pod has it
    assert world.held() == {WHOLE_A}


def test_a_restarted_kubelet_shows_an_empty_list_and_frees_nobody() -> None:
    world = running(WHOLE_A)
    world.kubelet(2)
    world.checkpoint(WHOLE_A)
    for _ in range(10):
        world.pods()
        world.checkpoint(WHOLE_A)
        world.now += 1.0
    assert world.held() == {WHOLE_A}


def test_rule_3_frees_a_grant_that_the_books_never_show() -> None:
    world = World()
    world.grant(WHOLE_A)
    world.now += 9.0
    world.pods()
    world.checkpoint()
    assert world.held() == {WHOLE_A}
    world.now += 1.1
    world.pods()
    world.checkpoint()
    assert not world.held()


def test_a_grant_that_the_checkpoint_shows_is_not_freed_by_rule_3() -> None:
    """A plain init container is never in a List."""
    world = World()
    world.grant(WHOLE_A)
    for _ in range(20):
        world.now += 1.0
        world.pods()
        world.checkpoint(WHOLE_A)
    assert world.held() == {WHOLE_A}


def test_ids_of_an_init_container_are_held_as_long_as_the_pod() -> None:
    world = World()
    world.grant(WHOLE_A, WHOLE_B)
    world.pods(WHOLE_A)
    world.checkpoint(WHOLE_A, WHOLE_B)
    for _ in range(5):
        world.now += 1.0
        world.pods(WHOLE_A)
        world.checkpoint(WHOLE_A, WHOLE_B)
    assert world.held() == {WHOLE_A, WHOLE_B}
    assert world.offer().nudge == 0
    world.pods()
    world.now += 2.1
    world.pods()
    assert not world.held()


def test_a_kubelet_whose_checkpoint_was_deleted_does_not_free_a_running_pods_gpu() -> None:
    world = running(WHOLE_A)
    world.kubelet(2)
    world.checkpoint()
    for _ in range(20):
        world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
        world.send()
        world.now += 1.0
        world.checkpoint()
    assert world.held() == {WHOLE_A}
    world.pods()
    world.now += 2.1
    world.pods()
    assert not world.held()


def test_a_finished_pod_that_is_still_listed_is_freed_once_its_entry_is_gone() -> None:
    """Up to 1.33 a List shows pods that ended, without devices."""
    world = running(WHOLE_A)
    world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
    world.checkpoint()
    world.now += 1.1
    world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
    world.send()
    world.now += 0.1
    world.checkpoint()
    assert not world.held()


def test_an_unreadable_checkpoint_leaves_rule_2_alone() -> None:
    """KBL-18"""
    world = running(WHOLE_A)
    world.tell(e.CheckpointFailed(error="truncated", missing=False))
    assert "checkpoint" in world.state.faults
    assert world.held() == {WHOLE_A}
    world.pods()
    world.now += 2.1
    world.pods()
    assert not world.held()


def test_a_failing_list_frees_nobody() -> None:
    world = running(WHOLE_A)
    for _ in range(20):
        world.now += 1.0
        world.tell(e.PodsListFailed(error="no such socket"))
        world.checkpoint(WHOLE_A)
    assert world.held() == {WHOLE_A}


def test_an_id_that_is_granted_again_begins_anew() -> None:
    world = running(WHOLE_A)
    world.pods()
    world.now += 1.9
    world.grant(WHOLE_A)  # the kubelet gave it to the next pod
    world.now += 0.2
    world.pods()
    assert world.held() == {WHOLE_A}
    assert world.state.holds[key(WHOLE_A)].pod is None


def test_holds_of_an_earlier_life_are_known_before_the_first_list() -> None:
    hold = Hold(resource=GPU, id=WHOLE_A, gpu=A, identity=Identity.WHOLE, since=1.0, pod=POD)
    world = World(replicas=2)
    world.tell(e.StateRestored(holds=(hold,), kubelet=SocketIdentity(1, 1)))
    assert world.listed() == {
        WHOLE_A: False,
        share(A, 0): False,
        share(A, 1): False,
        share(B, 0): True,
        share(B, 1): True,
    }


def test_a_pod_that_ended_and_is_still_listed_is_freed_although_its_entry_stays() -> None:
    """Up to 1.33, with completed Jobs on all GPUs: no Allocate would ever come to rewrite the checkpoint."""
    world = running(WHOLE_A)
    world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
    world.checkpoint(WHOLE_A)
    world.now += 2.1
    world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
    world.checkpoint(WHOLE_A)
    assert not world.held()


def test_a_grant_that_nobody_showed_before_the_kubelet_lost_its_books_stays_held() -> None:
    world = World()
    world.grant(WHOLE_A)
    world.kubelet(2)
    for _ in range(60):
        world.now += 1.0
        world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
        world.send()
        world.checkpoint()
    assert world.held() == {WHOLE_A}
    world.now += 300
    world.pods()
    assert not world.held()


def test_a_grant_that_nobody_showed_before_a_restart_is_shown_by_the_next_checkpoint() -> None:
    world = World()
    world.grant(WHOLE_A)
    world.kubelet(2)
    world.checkpoint(WHOLE_A)
    assert not world.state.holds[key(WHOLE_A)].suspended


def given(world: World) -> set[str]:
    """What Allocate would hand out of what is listed."""
    snapshot = world.snapshot
    return {one for one in world.listed() if not isinstance(answer(snapshot, GPU, [[one]]), Refusal)}


def test_nobody_gets_the_gpu_of_a_pod_that_a_kubelet_without_books_has_forgotten() -> None:
    """The file is gone when the kubelet begins: it thinks every device free.

    Healthy all the same: the scheduler takes what the pod asked for from what is allocatable.
    """
    world = running(WHOLE_A)
    world.kubelet(2)
    world.tell(e.CheckpointFailed(error="no such file", missing=True))
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}
    assert given(world) == {WHOLE_B}
    assert prefer(world.snapshot, GPU, [WHOLE_A, WHOLE_B], [], 1) == (WHOLE_B,)
    refusal = answer(world.snapshot, GPU, [[WHOLE_A]])
    assert isinstance(refusal, Refusal)
    assert "pod default/job has it" in refusal.message
    assert refusal.faulty == (WHOLE_A,)  # a topology policy may insist: not again and again
    world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now), after=1.0)
    world.checkpoint()
    assert given(world) == {WHOLE_B}
    world.tell(e.PodsListed(pods=(), asked_at=world.now + 1), after=1.0)
    world.tell(e.PodsListed(pods=(), asked_at=world.now + 3), after=3.0)
    assert given(world) == {WHOLE_A, WHOLE_B}


def test_nobody_gets_it_where_the_kubelet_did_not_trust_its_file() -> None:
    """The file reads well, but its checksum is wrong: the kubelet begins without books and tells nobody."""
    world = running(WHOLE_A)
    world.kubelet(2)
    world.checkpoint(WHOLE_A)
    world.serve(GPU)
    world.pods()  # the API server has not answered yet
    world.checkpoint()
    world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
    world.checkpoint()
    assert given(world) == {WHOLE_B}
    assert view.waiting(world.state)  # to give it back soon after the pod ends
    for _ in range(20):
        world.now += 1.0
        world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
        world.send()
        world.checkpoint()
    assert given(world) == {WHOLE_B}


def test_the_books_of_a_new_kubelet_are_read_until_it_has_written_them_itself() -> None:
    world = running(WHOLE_A)
    world.kubelet(2)
    world.checkpoint(WHOLE_A)
    world.pods(WHOLE_A)
    assert not view.waiting(world.state)
    world.serve(GPU)
    assert view.waiting(world.state)
    world.now += 1.1
    world.checkpoint(WHOLE_A)
    assert not view.waiting(world.state)


def test_a_pod_that_ended_while_the_kubelet_was_down_is_freed_by_its_new_books() -> None:
    world = running(WHOLE_A)
    world.kubelet(2)
    world.checkpoint(WHOLE_A)
    world.serve(GPU)
    world.pods(others=1)
    world.checkpoint()
    world.now += 1.1
    world.pods(others=1)
    world.send()
    world.now += 0.1
    world.checkpoint()
    assert not world.held()


def test_an_id_that_a_new_kubelets_books_lack_was_freed_if_they_know_the_resource() -> None:
    """Its pod ended, and another plugin's list had the books written, before anybody could look."""
    world = running(WHOLE_A)
    world.kubelet(2)
    world.checkpoint(known=[GPU])
    assert given(world) == {WHOLE_A, WHOLE_B}
    world.serve(GPU)
    world.pods(others=1)
    world.now += 1.1
    world.pods(others=1)
    world.send()
    world.now += 0.1
    world.checkpoint(known=[GPU])
    assert not world.held()


def test_an_id_that_a_new_kubelets_books_lack_was_lost_if_they_do_not_know_the_resource() -> None:
    """The file was gone, and another plugin's list had a new one written, before anybody could look."""
    world = running(WHOLE_A)
    world.kubelet(2)
    world.checkpoint(known=[ResourceName("example.com/nic")])
    assert given(world) == {WHOLE_B}


def test_a_forgotten_pods_id_that_was_refused_is_free_as_soon_as_the_pod_is_gone() -> None:
    world = running(WHOLE_A)
    world.kubelet(2)
    world.tell(e.CheckpointFailed(error="no such file", missing=True))
    world.tell(e.Refused(resource=GPU, ids=(WHOLE_A,), message="pod default/job has it", faulty=(WHOLE_A,), took=0.0))
    world.tell(e.PodsListed(pods=(BARE,), asked_at=world.now))
    assert world.listed() == {WHOLE_A: False, WHOLE_B: True}
    world.tell(e.PodsListed(pods=(), asked_at=world.now + 1), after=1.0)
    world.tell(e.PodsListed(pods=(), asked_at=world.now + 3), after=3.0)
    assert world.listed() == {WHOLE_A: True, WHOLE_B: True}


def test_a_share_that_the_kubelet_has_forgotten_leaves_the_others_free() -> None:
    world = running(share(A, 0), replicas=2)
    world.kubelet(2)
    world.tell(e.CheckpointFailed(error="no such file", missing=True))
    assert world.listed().keys() - given(world) == {share(A, 0)}


def test_a_checkpoint_that_turns_up_again_gives_the_kubelets_word_back() -> None:
    """It could not be read for a moment, the kubelet had it all the time."""
    world = running(WHOLE_A)
    world.kubelet(2)
    world.tell(e.CheckpointFailed(error="too many open files", missing=False))
    world.checkpoint(WHOLE_A)
    assert given(world) == {WHOLE_A, WHOLE_B}


def test_holds_that_allow_guard_no_lost_pod() -> None:
    world = running(WHOLE_A)
    world.config(holds=HoldsPolicy.ALLOW)
    world.kubelet(2)
    world.tell(e.CheckpointFailed(error="no such file", missing=True))
    assert given(world) == {WHOLE_A, WHOLE_B}


def earlier_boot() -> World:
    """An agent that begins again after a reboot, with what the state file of its predecessor says."""
    kept = memory(running(WHOLE_A).state)
    assert kept.boot == "boot"
    file = msgspec.json.encode(replace(kept, boot="the one before"))
    world = World()
    world.tell(recall(file, lambda text, path: None))
    world.kubelet(2)
    return world


def test_no_pod_of_an_earlier_boot_keeps_a_gpu_that_the_kubelet_has_forgotten() -> None:
    """A node that is set up anew: its kubelet's folder is empty, ours is not."""
    world = earlier_boot()
    assert world.held() == {WHOLE_A}
    world.tell(e.CheckpointFailed(error="no such file", missing=True))
    assert not world.held()
    assert given(world) == {WHOLE_A, WHOLE_B}


def test_nor_one_that_the_books_of_this_boot_lack() -> None:
    world = earlier_boot()
    world.checkpoint(WHOLE_B)
    assert world.held() == {WHOLE_B}


def test_a_pod_that_the_kubelet_starts_again_after_a_reboot_has_its_gpu() -> None:
    world = earlier_boot()
    world.checkpoint(WHOLE_A)
    assert not world.state.holds[key(WHOLE_A)].rebooted
    world.kubelet(3)
    world.tell(e.CheckpointFailed(error="no such file", missing=True))
    assert world.held() == {WHOLE_A}
    assert world.state.holds[key(WHOLE_A)].suspended


def test_a_file_that_cannot_be_read_after_a_reboot_frees_nobody() -> None:
    """It may be that the kubelet can."""
    world = earlier_boot()
    world.tell(e.CheckpointFailed(error="permission denied", missing=False))
    assert world.held() == {WHOLE_A}


def test_an_agent_that_begins_again_in_the_same_boot_takes_nobody_for_dead() -> None:
    hold = Hold(resource=GPU, id=WHOLE_A, gpu=A, identity=Identity.WHOLE, since=1.0, pod=POD)
    for boot in ("boot", ""):
        world = World()
        world.tell(e.StateRestored(holds=(hold,), boot=boot))
        world.kubelet(2)
        world.tell(e.CheckpointFailed(error="no such file", missing=True))
        assert world.held() == {WHOLE_A}
