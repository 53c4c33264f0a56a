"""What is advertised and allocated from: immutable, handed to the gRPC side whole.

Devices are kept in groups, one for each physical GPU, identity and resource. A group that did not change is the same
object, so that comparing two snapshots of many thousand ids costs as much as comparing their groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import msgspec
from msgspec import Struct

from reactor.model.ids import DeviceId, GpuUuid, ResourceName, parse_device_id


class Listed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One id in a resource's list.

    There may be 60 000 of them: a struct is made 15 times as fast as a dataclass, and the collector has none to visit.
    """

    id: DeviceId
    gpu: GpuUuid | None
    """None: a tombstone of another plugin's spelling."""
    index: int | None
    """NVML index of the GPU, None for a GPU that is gone."""
    minor: int | None
    share: int | None
    healthy: bool
    reason: str = ""
    """Why it is not healthy or not handed out, in the words that a refused pod's status will show."""
    kept: bool = False
    """Not handed out although healthy: a pod has it that the kubelet forgot. Unhealthy would take it away twice, since
    the scheduler still counts what that pod asked for."""
    numa: tuple[int, ...] = ()


class Group(tuple[Listed, ...]):
    """Ids of one physical GPU in one list, with what is often asked of them: worked out once, when first asked."""

    made_of: object
    """Groups that were made of equal things are equal: who remembers this need not make or compare the ids."""

    def __new__(cls, listed: Iterable[Listed], made_of: object = None) -> Self:
        group = super().__new__(cls, listed)
        group.made_of = made_of
        return group

    @cached_property
    def by_id(self) -> Mapping[DeviceId, Listed]:
        return {one.id: one for one in self}

    @cached_property
    def placed(self) -> bool:
        """Whether the NUMA node of every id is known."""
        return all(one.numa for one in self)


class ById(Mapping[DeviceId, Listed]):
    """The ids of several groups. Looking one up costs its own group, once; a change elsewhere costs nothing."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups: dict[GpuUuid | None, list[Group]] = {}
        for group in groups:
            if group:
                self._groups.setdefault(group[0].gpu, []).append(group)

    def __getitem__(self, key: DeviceId) -> Listed:
        ref = parse_device_id(key)
        for group in self._groups.get(ref.gpu if ref else None, ()):
            found = group.by_id.get(key)
            if found is not None:
                return found
        raise KeyError(key)

    def __iter__(self) -> Iterator[DeviceId]:
        return (one.id for groups in self._groups.values() for group in groups for one in group)

    def __len__(self) -> int:
        return sum(len(group) for groups in self._groups.values() for group in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One resource as the kubelet shall see it."""

    resource: ResourceName
    groups: tuple[tuple[Listed, ...], ...]
    revision: int
    """State revision at which this content was first shown."""
    single: bool = False
    """Refuse requests for more than one id when one of them is a share (failRequestsGreaterThanOne)."""
    nudge: int = 0
    """Raised to have an unchanged list sent again: from 1.34 on that makes the kubelet rewrite its checkpoint."""
    topology: bool = False
    """Whether NUMA nodes are sent: for all ids of a resource or for none."""
    by_id: Mapping[DeviceId, Listed] = field(compare=False, repr=False, default_factory=dict)

    def devices(self) -> Iterator[Listed]:
        for group in self.groups:
            yield from group

    def __len__(self) -> int:
        return len(self.by_id)


class AnswerPolicy(Struct, frozen=True, kw_only=True):
    """How Allocate answers: the part of the config and of the inventory that every answer needs."""

    envvar: bool = True
    """Name the devices in NVIDIA_VISIBLE_DEVICES."""
    volume_mounts: bool = False
    """Name the devices by mounts, which a container cannot ask for by itself; goes before ``envvar``."""
    indices: bool = False
    """Name a device by its index instead of its UUID."""
    modes: tuple[str, ...] = ()
    """Variables that are set to "enabled", such as NVIDIA_GDS."""
    channels: tuple[int, ...] = ()
    """IMEX channels that every container is given, as far as their nodes are there."""
    channels_required: bool = False
    """Whether nothing is handed out while one of these nodes is missing."""
    packed: bool = False
    """Prefer shares of the GPU that is used most, instead of the one that is used least."""
    device_specs: bool = False
    """Pass device nodes (passDeviceSpecs)."""
    dev_root: str = "/"
    """Root of the device nodes on the host (nvidiaDevRoot)."""
    nodes: frozenset[str] = frozenset()
    """Device nodes seen by the last scan."""
    nodes_known: bool = False


class Snapshot(Struct, frozen=True, kw_only=True):
    revision: int = 0
    grants: int = 0
    """Number of the last grant that is folded in: the server guards the GPUs of later ones itself."""
    offers: Mapping[ResourceName, Offer] = msgspec.field(default_factory=dict)
    answers: AnswerPolicy = AnswerPolicy()
    guard: bool = True
    """holds: wait. A GPU that was granted is not granted under another identity before the grant is folded in."""
