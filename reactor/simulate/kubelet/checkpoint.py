"""``kubelet_internal_checkpoint``: allocations with the plugin's answers, and the healthy ids of each resource.

A ``Books`` is one content of that file. It is made on every list and every allocation but seldom read, so it is
rendered only when somebody looks.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from reactor.simulate.kubelet.plugin import ContainerAnswer
from reactor.simulate.kubelet.wire import decode_answer, encode_answer

NO_NODE = -1
"""Key of the devices that name no NUMA node."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The ids of one (pod, container, resource) and the answer that came with them."""

    by_node: Mapping[int, tuple[str, ...]]
    answer: ContainerAnswer
    ids: frozenset[str]

    @classmethod
    def of(cls, by_node: Mapping[int, tuple[str, ...]], answer: ContainerAnswer) -> Allocation:
        return cls(by_node, answer, frozenset(each for ids in by_node.values() for each in ids))


@dataclass(frozen=True, slots=True)
class Entry:
    uid: str
    container: str
    resource: str
    allocation: Allocation


@dataclass(frozen=True)
class Books:
    entries: tuple[Entry, ...] = ()
    registered: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def text(self) -> bytes:
        data = {
            "PodDeviceEntries": [_entry(each) for each in self.entries] or None,
            "RegisteredDevices": {resource: sorted(ids) for resource, ids in self.registered.items()},
        }
        return json.dumps({"Data": data, "Checksum": checksum(data)}, separators=(",", ":")).encode()


def _entry(entry: Entry) -> dict[str, object]:
    return {
        "PodUID": entry.uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(node): list(ids) for node, ids in entry.allocation.by_node.items()},
        "AllocResp": base64.b64encode(encode_answer(entry.allocation.answer)).decode(),
    }


def checksum(data: object) -> int:
    """Ours, not the kubelet's (which hashes a dump of Go structures): readers must not depend on it."""
    return zlib.crc32(json.dumps(data, separators=(",", ":")).encode())


def parse(text: bytes) -> Books:
    """Read the file at a start. What cannot be read counts as nothing, as with the kubelet."""
    try:
        document = json.loads(text)
        data = document["Data"]
        if document["Checksum"] != checksum(data):
            return Books()
        entries = tuple(_parse_entry(each) for each in data["PodDeviceEntries"] or ())
        registered = {str(name): frozenset(map(str, ids)) for name, ids in data["RegisteredDevices"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return Books()
    return Books(entries, registered)


def _parse_entry(raw: Mapping[str, object]) -> Entry:
    devices, answer = raw["DeviceIDs"], raw["AllocResp"]
    if not isinstance(devices, dict) or not isinstance(answer, str):
        raise TypeError("DeviceIDs or AllocResp of another shape")
    by_node = {int(node): tuple(map(str, ids)) for node, ids in devices.items()}
    allocation = Allocation.of(by_node, decode_answer(base64.b64decode(answer, validate=True)))
    return Entry(str(raw["PodUID"]), str(raw["ContainerName"]), str(raw["ResourceName"]), allocation)
