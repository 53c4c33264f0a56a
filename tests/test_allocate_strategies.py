"""The ways to tell a container its devices, alone and together, and which shares are preferred."""

from __future__ import annotations

import pytest

from reactor.allocate import answer, channel_node, missing_node, prefer
from reactor.model.kubelet import Answer
from reactor.model.snapshot import AnswerPolicy
from reactor.model.value import replace
from tests.test_allocate import GPU, NODES, SPECS, ids, listed, refused, shared, snapshot, uuid, whole

ROOT = "/var/run/nvidia-container-devices"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


def told(policy: AnswerPolicy, *pairs: tuple[int, int | None]) -> Answer:
    groups = whole(8) if all(share is None for _, share in pairs) else shared(8, 4)
    result = answer(snapshot(groups, policy), GPU, [ids(*pairs)])
    assert isinstance(result, tuple)
    return result[0]


def test_indices_are_those_of_the_gpus_in_the_order_of_the_request():
    policy = AnswerPolicy(indices=True)
    assert told(policy, (5, None), (0, None), (7, None)).envs == (("NVIDIA_VISIBLE_DEVICES", "5,0,7"),)
    assert told(policy, (1, 3), (0, 0), (1, 0)).envs == (("NVIDIA_VISIBLE_DEVICES", "1,0"),)


def test_volume_mounts_name_each_device_by_a_path():
    policy = AnswerPolicy(envvar=False, volume_mounts=True)
    assert told(policy, (1, 0), (0, 2), (1, 1)) == Answer(
        envs=(("NVIDIA_VISIBLE_DEVICES", ROOT),),
        mounts=((f"{ROOT}/{uuid(1)}", "/dev/null"), (f"{ROOT}/{uuid(0)}", "/dev/null")),
    )


def test_volume_mounts_go_before_the_variable():
    both = AnswerPolicy(envvar=True, volume_mounts=True, indices=True)
    assert told(both, (2, None)) == Answer(
        envs=(("NVIDIA_VISIBLE_DEVICES", ROOT),), mounts=((f"{ROOT}/2", "/dev/null"),)
    )


def test_everything_together_is_what_the_peer_gives():
    policy = replace(
        SPECS,
        volume_mounts=True,
        indices=True,
        modes=("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"),
        channels=(0,),
        nodes=NODES | {CHANNEL},
        dev_root="/driver",
    )
    assert told(policy, (0, None)) == Answer(
        envs=(
            ("NVIDIA_GDRCOPY", "enabled"),
            ("NVIDIA_GDS", "enabled"),
            ("NVIDIA_MOFED", "enabled"),
            ("NVIDIA_VISIBLE_DEVICES", ROOT),
            ("NVIDIA_IMEX_CHANNELS", "0"),
        ),
        mounts=((f"{ROOT}/0", "/dev/null"), (f"{ROOT}/imex/0", "/dev/null")),
        devices=tuple(
            (node, f"/driver{node}", "rw")
            for node in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3", "/dev/nvidia-caps-imex-channels/channel0")
        ),
    )


@pytest.mark.parametrize("policy", [AnswerPolicy(volume_mounts=True), AnswerPolicy(modes=("NVIDIA_GDS",))])
def test_a_container_without_ids_is_told_that_it_has_none(policy):
    """ALC-07"""
    assert told(policy) == Answer(envs=(("NVIDIA_VISIBLE_DEVICES", "void"),))


def test_each_container_of_one_call_has_the_devices_of_its_own_ids():
    """SHR-10: paired by id, whatever order the call is in."""
    node = snapshot(whole(4), AnswerPolicy(volume_mounts=True, indices=True))
    asked = [ids((3, None)), ids((0, None), (2, None)), ids((1, None))]
    result = answer(node, GPU, asked)
    assert isinstance(result, tuple)
    paths = [[path.removeprefix(f"{ROOT}/") for path, _ in one.mounts] for one in result]
    assert paths == [["3"], ["0", "2"], ["1"]]


# ---------------------------------------------------------------- IMEX


def test_a_channel_that_is_not_there_is_left_out():
    assert told(AnswerPolicy(channels=(0,), nodes=NODES, nodes_known=True), (0, None)).envs == (
        ("NVIDIA_VISIBLE_DEVICES", uuid(0)),
    )


def test_a_channel_that_is_required_and_not_there_keeps_everything_back():
    policy = AnswerPolicy(channels=(0,), channels_required=True, nodes=NODES, nodes_known=True)
    assert missing_node(policy, 3) == channel_node(0) == CHANNEL
    refusal = refused(answer(snapshot(whole(2), policy), GPU, [ids((0, None))]))
    assert refusal.faulty == (uuid(0),)
    assert CHANNEL in refusal.message
    assert missing_node(replace(policy, nodes=NODES | {CHANNEL}), 3) == ""
    assert missing_node(replace(policy, nodes_known=False), 3) == ""


# ---------------------------------------------------------------- packed


def test_packed_shares_come_from_the_gpu_that_is_used_most():
    """SHR-01"""
    node = snapshot(shared(3, 4), AnswerPolicy(packed=True))
    # Taken: 3, 1, 2.
    available = ids((0, 3), (1, 3), (1, 2), (1, 1), (2, 2), (2, 1))
    assert list(prefer(node, GPU, available, [], 4)) == ids((0, 3), (2, 1), (2, 2), (1, 1))


@pytest.mark.parametrize(
    ("gpus", "replicas", "size", "each"),
    [(2, 4, 2, [2, 0]), (3, 2, 3, [2, 1, 0]), (2, 4, 4, [4, 0]), (2, 4, 5, [4, 1]), (1, 4, 1, [1])],
)
def test_packed_fills_one_gpu_after_the_other(gpus, replicas, size, each):
    node = snapshot(shared(gpus, replicas), AnswerPolicy(packed=True))
    chosen = prefer(node, GPU, list(node.offers[GPU].by_id), [], size)
    assert [sum(one.startswith(uuid(index)) for one in chosen) for index in range(gpus)] == each


def test_packed_stays_beside_what_must_be_included():
    node = snapshot(shared(2, 4), AnswerPolicy(packed=True))
    assert list(prefer(node, GPU, list(node.offers[GPU].by_id), ids((1, 2)), 3)) == ids((1, 2), (1, 0), (1, 1))


def test_packed_changes_nothing_for_whole_gpus():
    groups = [[listed(index, numa=(index % 2,))] for index in range(4)]
    node = snapshot(groups, AnswerPolicy(packed=True))
    assert list(prefer(node, GPU, list(node.offers[GPU].by_id), [], 2)) == ids((0, None), (2, None))
