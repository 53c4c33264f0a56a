"""The kubelet's books: who holds which id, by podresources List and by its checkpoint file, both only read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import trio

from reactor.aio import Door
from reactor.kubelet import calls
from reactor.kubelet._pb import podresources_pb2 as pb
from reactor.model.errors import Refused, Transient
from reactor.model.hold import Checkpoint, CheckpointEntry, PodDevices, PodRef
from reactor.model.ids import DeviceId, ResourceName


async def list_pods(door: Door, socket: Path, deadline: float = 5.0) -> tuple[PodDevices, ...]:
    """Ask podresources who has what; one entry a pod, merged over containers and NUMA nodes, in a fixed order."""
    reply = await door.call(calls.list_pods, str(socket), deadline)
    return merge_pods(reply)


def merge_pods(reply: pb.ListPodResourcesResponse) -> tuple[PodDevices, ...]:
    """The kubelet sends one entry for each device and NUMA node, in random order, and a pod for each of its states."""
    pods: dict[PodRef, dict[tuple[ResourceName, DeviceId], set[int]]] = {}
    for pod in reply.pod_resources:
        devices = pods.setdefault(PodRef(pod.namespace, pod.name), {})
        for container in pod.containers:
            for entry in container.devices:
                nodes = {node.ID for node in entry.topology.nodes if node.ID >= 0}
                for device in entry.device_ids:
                    devices.setdefault((ResourceName(entry.resource_name), DeviceId(device)), set()).update(nodes)
    return tuple(
        PodDevices(pod=pod, devices=tuple((*key, tuple(sorted(nodes))) for key, nodes in sorted(devices.items())))
        for pod, devices in sorted(pods.items())
    )


async def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint file. Transient if it cannot be read (its cause tells whether it is missing)."""
    try:
        data = await trio.Path(path).read_bytes()
    except OSError as exc:
        raise Transient(f"reading the kubelet's checkpoint {path}: {exc.strerror or exc}") from exc
    try:
        return parse_checkpoint(data)
    except Refused as exc:
        raise Refused(f"the kubelet's checkpoint {path}: {exc}") from exc


def parse_checkpoint(data: bytes) -> Checkpoint:
    """The allocations in a checkpoint, and the resources that it names.

    Its checksum is left to the kubelet: any change of its own format breaks that.

    Up to 1.19 the ids of an entry were a plain list; later they are keyed by NUMA node, "-1" for none.
    """
    try:
        document: object = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise Refused(f"not JSON: {exc}") from exc
    content = _mapping(_member(_mapping(document, "the document"), "Data", "the document"), "Data")
    entries, registered = content.get("PodDeviceEntries"), content.get("RegisteredDevices")
    found: list[CheckpointEntry] = []
    for index, entry in enumerate([] if entries is None else _sequence(entries, "PodDeviceEntries")):
        found.extend(_entry(_mapping(entry, f"PodDeviceEntries[{index}]"), f"PodDeviceEntries[{index}]"))
    resources = registered if isinstance(registered, dict) else {}
    return Checkpoint(entries=tuple(found), resources=frozenset(ResourceName(name) for name in resources))


def _entry(entry: dict[str, object], where: str) -> Iterator[CheckpointEntry]:
    pod, container, resource = (
        _text(_member(entry, key, where), f"{where}.{key}") for key in ("PodUID", "ContainerName", "ResourceName")
    )
    nodes: defaultdict[str, set[int]] = defaultdict(set)
    for node, ids in _by_node(entry.get("DeviceIDs"), f"{where}.DeviceIDs"):
        for one in ids:
            nodes[_text(one, f"{where}.DeviceIDs")].update({node} if node >= 0 else ())
    for one, places in nodes.items():
        yield CheckpointEntry(
            pod_uid=pod,
            container=container,
            resource=ResourceName(resource),
            id=DeviceId(one),
            numa=tuple(sorted(places)),
        )


def _by_node(value: object, where: str) -> Iterator[tuple[int, list[object]]]:
    match value:
        case None:
            return
        case list():
            yield -1, value
        case _:
            for node, ids in _mapping(value, where).items():
                try:
                    number = int(node)
                except ValueError as exc:
                    raise Refused(f"{where}: {node!r} is not a NUMA node") from exc
                yield number, [] if ids is None else _sequence(ids, where)


def _member(mapping: dict[str, object], key: str, where: str) -> object:
    if key not in mapping:
        raise Refused(f"{where} has no {key}")
    return mapping[key]


def _mapping(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Refused(f"{where} is not an object")
    return value


def _sequence(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise Refused(f"{where} is not a list")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{where} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError as exc:  # JSON can spell half a surrogate pair: no list could be sent that has such an id
        raise Refused(f"{where} is not Unicode") from exc
    return value
