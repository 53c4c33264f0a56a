"""The kubelet's books: checkpoint files of every shape, and List merged to one entry a pod."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor.kubelet._pb import podresources_pb2 as pb
from reactor.kubelet.books import merge_pods, parse_checkpoint, read_checkpoint
from reactor.model.errors import Refused, Transient
from reactor.model.hold import CheckpointEntry, PodRef

ENTRY = ("PodUID", "ContainerName", "ResourceName", "DeviceIDs")


def _checkpoint(*entries: object) -> bytes:
    return json.dumps({"Data": {"PodDeviceEntries": list(entries), "RegisteredDevices": {}}, "Checksum": 7}).encode()


def _entry(ids: object, *, uid: str = "u1", container: str = "c", resource: str = "nvidia.com/gpu") -> object:
    return {"PodUID": uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": ids, "AllocResp": "Cg=="}


def test_ids_are_read_with_the_numa_node_they_are_keyed_by() -> None:
    read = parse_checkpoint(_checkpoint(_entry({"-1": ["a"], "1": ["b"], "0": ["b"]}))).entries
    assert [(one.id, one.numa, one.pod_uid, one.container, one.resource) for one in read] == [
        ("a", (), "u1", "c", "nvidia.com/gpu"),
        ("b", (0, 1), "u1", "c", "nvidia.com/gpu"),
    ]


def test_an_id_may_stand_in_several_containers_of_a_pod() -> None:
    read = parse_checkpoint(_checkpoint(_entry({"-1": ["a"]}, container="i"), _entry({"-1": ["a"]}))).entries
    assert [one.container for one in read] == ["i", "c"]


def test_the_older_plain_list_of_ids_is_read() -> None:
    assert [one.id for one in parse_checkpoint(_checkpoint(_entry(["a", "b"]))).entries] == ["a", "b"]


@pytest.mark.parametrize("entries", ["null", "[]"])
def test_no_entries_is_an_empty_book(entries: str) -> None:
    text = f'{{"Data":{{"PodDeviceEntries":{entries},"RegisteredDevices":{{}}}},"Checksum":1}}'
    assert parse_checkpoint(text.encode()).entries == ()


@pytest.mark.parametrize(
    ("registered", "names"),
    [('{"nvidia.com/gpu":["a"],"x/y":null}', {"nvidia.com/gpu", "x/y"}), ("null", set()), ("[1]", set())],
)
def test_resources_that_the_kubelet_knows_are_told(registered: str, names: set[str]) -> None:
    text = f'{{"Data":{{"PodDeviceEntries":null,"RegisteredDevices":{registered}}},"Checksum":1}}'
    assert parse_checkpoint(text.encode()).resources == names


def test_entries_without_ids_hold_nothing() -> None:
    assert parse_checkpoint(_checkpoint(_entry(None), _entry({"-1": None}))).entries == ()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b'{"Data":', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "the document is not an object"),
        (b"{}", "no Data"),
        (b'{"Data":[]}', "Data is not an object"),
        (b'{"Data":{"PodDeviceEntries":{}}}', "PodDeviceEntries is not a list"),
        (_checkpoint({"PodUID": "u"}), r"PodDeviceEntries\[0\] has no ContainerName"),
        (_checkpoint(_entry({"x": ["a"]})), "'x' is not a NUMA node"),
        (_checkpoint(_entry({"0": [1]})), r"PodDeviceEntries\[0\].DeviceIDs is not a string"),
        (_checkpoint(_entry("a")), "DeviceIDs is not an object"),
    ],
)
def test_a_broken_checkpoint_is_refused_with_the_place(data: bytes, says: str) -> None:
    """KBL-18"""
    with pytest.raises(Refused, match=says):
        parse_checkpoint(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "Data",
                        "PodDeviceEntries",
                        "RegisteredDevices",
                        "PodUID",
                        "ContainerName",
                        "ResourceName",
                        "DeviceIDs",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_refused(document: object) -> None:
    """KBL-18"""
    try:
        read = parse_checkpoint(json.dumps(document).encode())
    except Refused:
        return
    assert all(isinstance(one, CheckpointEntry) for one in read.entries)


async def test_a_missing_checkpoint_is_transient_and_keeps_its_cause(tmp_path: Path) -> None:
    """KBL-18"""
    with pytest.raises(Transient, match="kubelet_internal_checkpoint") as caught:
        await read_checkpoint(tmp_path / "kubelet_internal_checkpoint")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


async def test_a_truncated_checkpoint_names_its_file(tmp_path: Path) -> None:
    """KBL-18"""
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_bytes(_checkpoint(_entry({"-1": ["a"]}))[:40])
    with pytest.raises(Refused, match=str(path)):
        await read_checkpoint(path)
    path.write_bytes(_checkpoint(_entry({"-1": ["a"]})))
    assert len((await read_checkpoint(path)).entries) == 1


def _devices(resource: str, device: str, *nodes: int) -> pb.ContainerDevices:
    return pb.ContainerDevices(
        resource_name=resource,
        device_ids=[device],
        topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in nodes]),
    )


def test_a_pod_is_one_entry_whatever_the_order_of_its_parts() -> None:
    parts = [_devices("r", "b", 1), _devices("r", "a"), _devices("r", "b", 0), _devices("q", "z", -1)]
    orders = [parts, parts[::-1]]
    read = [
        merge_pods(
            pb.ListPodResourcesResponse(
                pod_resources=[
                    pb.PodResources(
                        namespace="n",
                        name="p",
                        containers=[
                            pb.ContainerResources(name="one", devices=order[:2]),
                            pb.ContainerResources(name="two", devices=order[2:]),
                        ],
                    ),
                    pb.PodResources(namespace="n", name="idle"),
                ]
            )
        )
        for order in orders
    ]
    assert read[0] == read[1]
    assert [(one.pod, one.devices) for one in read[0]] == [
        (PodRef("n", "idle"), ()),
        (PodRef("n", "p"), (("q", "z", ()), ("r", "a", ()), ("r", "b", (0, 1)))),
    ]
