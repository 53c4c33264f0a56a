"""Lists as bytes: what the kubelet decodes, and that unchanged groups are not encoded again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet.encode import ListEncoder, list_bytes
from reactor.kubelet.groups import Group, PerGroup
from reactor.model.ids import DeviceId
from reactor.model.snapshot import Listed
from tests.kubelet.fakes import group, offer


def test_the_message_is_what_protobuf_would_make_of_the_whole_list() -> None:
    content = offer(group(0, numa=(0,)), group(1, replicas=2, healthy=False, numa=(1,)), topology=True)
    read = pb.ListAndWatchResponse.FromString(ListEncoder().encode(content).data)
    assert [(one.ID, one.health, [node.ID for node in one.topology.nodes]) for one in read.devices] == [
        (listed.id, "Healthy" if listed.healthy else "Unhealthy", list(listed.numa)) for listed in content.devices()
    ]
    assert read.SerializeToString() == ListEncoder().encode(content).data


@given(st.lists(st.tuples(st.text(max_size=300), st.booleans(), st.lists(st.integers(0, 300), max_size=3)), max_size=5))
def test_any_ids_are_encoded_as_protobuf_does(rows: list[tuple[str, bool, list[int]]]) -> None:
    listed = tuple(
        Listed(id=DeviceId(name), gpu=None, index=None, minor=None, share=None, healthy=healthy, numa=tuple(numa))
        for name, healthy, numa in rows
    )
    expected = pb.ListAndWatchResponse()
    for one in listed:
        device = expected.devices.add(ID=one.id, health="Healthy" if one.healthy else "Unhealthy")
        device.topology.nodes.extend(pb.NUMANode(ID=node) for node in one.numa)
        if not one.numa:
            device.ClearField("topology")
    read = pb.ListAndWatchResponse.FromString(ListEncoder().encode(offer(listed, topology=True)).data)
    assert read == expected


def test_no_topology_is_sent_unless_the_offer_says_so() -> None:
    read = pb.ListAndWatchResponse.FromString(ListEncoder().encode(offer(group(0, numa=(1,)))).data)
    assert not read.devices[0].HasField("topology")


def test_switching_topology_on_encodes_the_same_groups_anew() -> None:
    same = group(0, numa=(1,))
    encoder = ListEncoder()
    plain = encoder.encode(offer(same))
    placed = encoder.encode(offer(same, topology=True, revision=2))
    assert len(placed.data) > len(plain.data)
    assert encoder.encode(offer(same, revision=3)) == plain


def test_an_empty_list_is_an_empty_message() -> None:
    assert ListEncoder().encode(offer()).data == b""


def test_list_bytes_is_the_size_of_the_message() -> None:
    content = offer(group(0, replicas=10), group(1))
    assert list_bytes(content) == len(ListEncoder().encode(content).data)


def test_a_change_of_one_gpu_costs_that_gpu_only() -> None:
    computed: list[Group] = []
    groups = [group(index, replicas=3) for index in range(4)]
    each = PerGroup(lambda one: computed.append(one) or len(computed))
    assert each.of(offer(*groups)) == [1, 2, 3, 4]
    groups[2] = group(2, replicas=3, healthy=False)
    assert each.of(offer(*groups, revision=2)) == [1, 2, 5, 4]
    assert each.of(offer(*groups[1:], revision=3)) == [2, 5, 4]
    assert len(computed) == 5
