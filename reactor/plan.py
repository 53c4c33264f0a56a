"""(Config, GPUs) -> Plan: what the config asks of this inventory. Pure.

A plan holds each GPU at most once: under one resource and one identity (whole, or shared by n). A GPU that no resource
lists has a reason instead, so every GPU is in exactly one of ``resources`` and ``unlisted``.

What cannot be honoured is not advertised (design.md 5): a pod must never get a whole GPU where the config asks for a
MIG device, for MPS, or for a way to name devices that this version has not. What only adds to an answer that is right
without it does not block: other members of deviceListStrategy next to one that is served are left out, and show as
``Config.unserved``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from reactor.model.config import (
    SERVED_STRATEGIES,
    AllDevices,
    Config,
    DeviceSelector,
    FirstDevices,
    MigStrategy,
    Select,
    Selection,
    SharedResource,
)
from reactor.model.gpu import Gpu, MigMode
from reactor.model.ids import GpuUuid, ResourceName

LIST_LIMIT = 4 * 1024 * 1024
"""Largest message that the kubelet takes; it drops a larger one and the resource shows 0 (CFG-09)."""

_DISPLAYS = ("DGX Display", "NVIDIA DGX Display")


class PlannedGroup(Struct, frozen=True, kw_only=True):
    """The ids of one GPU within a resource: the GPU as a whole (replicas 0) or shares 0..replicas-1."""

    gpu: GpuUuid
    replicas: int = 0


class PlannedResource(Struct, frozen=True, kw_only=True):
    name: ResourceName
    groups: tuple[PlannedGroup, ...]
    """By GPU index."""
    single: bool = False
    """Refuse requests for more than one share (failRequestsGreaterThanOne)."""


class Oversize(Struct, frozen=True, kw_only=True):
    """A resource whose list would not fit into one message to the kubelet."""

    resource: ResourceName
    bytes: int
    """Tombstones included."""
    limit: int
    replicas: int
    """What was asked for, the most of any GPU of the resource; 0: all of them are whole."""
    largest: int
    """The largest number of replicas that fits, if no GPU gets more; 0: none does."""
    gpus: tuple[GpuUuid, ...] = ()
    """The GPUs that are left out with it, by index."""


class Plan(Struct, frozen=True, kw_only=True):
    resources: tuple[PlannedResource, ...] = ()
    """By name."""
    unlisted: Mapping[GpuUuid, str] = field(default_factory=dict)
    """GPUs that no resource lists, each with the reason."""
    oversize: tuple[Oversize, ...] = ()
    """Resources left out because they would not fit; the caller keeps what it had."""
    notices: tuple[str, ...] = ()
    """What in the config has no effect on this inventory, for people."""


EMPTY = Plan()

_Member = tuple[Gpu, PlannedGroup]


def make_plan(config: Config, gpus: Sequence[Gpu], reserved: Mapping[ResourceName, int] | None = None) -> Plan:
    """What ``config`` asks of ``gpus``.

    ``reserved``: bytes that tombstones take in the list of a resource (``tombstone_size``); the size guard counts them.
    """
    homes, unlisted = _homes(config, gpus)
    shares, notices = _shares(config, homes)
    notices = (*_unmatched(config.select, gpus), *notices)
    members: dict[ResourceName, list[_Member]] = {}
    for home, owned in homes.items():
        for gpu in owned:
            name, replicas = shares.get(gpu.uuid, (home, 0))
            if {home, name} & config.mps:
                unlisted[gpu.uuid] = f"sharing.mps is asked for {name}, which this version does not serve"
            else:
                members.setdefault(name, []).append((gpu, PlannedGroup(gpu=gpu.uuid, replicas=replicas)))
    resources = []
    oversize = []
    for name in sorted(members):
        inside = sorted(members[name], key=lambda member: (member[0].index, member[0].uuid))
        excess = _excess(name, inside, (reserved or {}).get(name, 0))
        if excess is None:
            groups = tuple(group for _, group in inside)
            single = config.time_slicing.fail_requests_greater_than_one and any(group.replicas for group in groups)
            resources.append(PlannedResource(name=name, groups=groups, single=single))
        else:
            oversize.append(excess)
            reason = f"the list of {name} would take {excess.bytes} bytes of {excess.limit}"
            unlisted.update(dict.fromkeys(excess.gpus, reason))
    return Plan(resources=tuple(resources), unlisted=unlisted, oversize=tuple(oversize), notices=notices)


# ---------------------------------------------------------------- which resource


def _homes(config: Config, gpus: Sequence[Gpu]) -> tuple[dict[ResourceName, list[Gpu]], dict[GpuUuid, str]]:
    """Each GPU under the resource that ``resources.gpus`` gives it, by index, before sharing; the others' reasons."""
    homes: dict[ResourceName, list[Gpu]] = {}
    unlisted: dict[GpuUuid, str] = {}
    for gpu in sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid)):
        obstacle = _obstacle(config, gpu)
        name = next((entry.name for entry in config.gpus if matches(entry.pattern, gpu.product)), None)
        if obstacle:
            unlisted[gpu.uuid] = obstacle
        elif name is None:
            unlisted[gpu.uuid] = f"no pattern of resources.gpus matches {gpu.product!r}"
        else:
            homes.setdefault(name, []).append(gpu)
    return homes, unlisted


def _obstacle(config: Config, gpu: Gpu) -> str:
    """Why this GPU cannot be handed out as the config asks; empty if it can."""
    if gpu.product in _DISPLAYS:
        return f"{gpu.product} drives the display"
    unselected = _unselected(config.select, gpu)
    if unselected:
        return unselected
    flags = config.flags
    if not set(SERVED_STRATEGIES) & set(flags.device_list_strategy):
        asked = ", ".join(flags.device_list_strategy) or "none"
        return (
            f"deviceListStrategy is {asked}, of which this version serves none ({', '.join(SERVED_STRATEGIES)} it does)"
        )
    if flags.mig_strategy is not MigStrategy.NONE and gpu.mig is MigMode.ENABLED:
        return f"MIG is enabled and migStrategy is {flags.mig_strategy}: this version does not serve MIG devices"
    return ""


def matches(pattern: str, text: str) -> bool:
    """Whether ``text`` as a whole matches ``pattern``, in which ``*`` alone is special: any run of characters.

    Linear, unlike a regular expression, so that no config can stall the agent.
    """
    head, *parts = pattern.split("*")
    if not parts:
        return text == head
    *middle, tail = parts
    at, end = len(head), len(text) - len(tail)
    if at > end or not (text.startswith(head) and text.endswith(tail)):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


# ---------------------------------------------------------------- selection


def _unselected(select: Select, gpu: Gpu) -> str:
    """Why ``select`` leaves this GPU out; empty if it does not."""
    if select.exclude is not None:
        named = _named_by(select.exclude, gpu)
        if named:
            return f"select.exclude names it ({named})"
    if select.include is not None and not _named_by(select.include, gpu):
        return "select.include does not name it"
    return ""


def _named_by(selection: Selection, gpu: Gpu) -> str:
    """By which of its criteria a selection names this GPU; empty: by none."""
    if gpu.index in selection.indices:
        return f"index {gpu.index}"
    if gpu.uuid in selection.uuids:
        return "its UUID"
    if gpu.pci in selection.pci:
        return f"PCI address {gpu.pci}"
    pattern = next((pattern for pattern in selection.products if matches(pattern, gpu.product)), None)
    return "" if pattern is None else f"{gpu.product} matches {pattern!r}"


def _unmatched(select: Select, gpus: Sequence[Gpu]) -> Iterator[str]:
    """What ``select`` names and this node does not have."""
    for key, selection in (("include", select.include), ("exclude", select.exclude)):
        if selection is None:
            continue
        lacking: dict[str, list[str]] = {
            "indices": list(map(str, sorted(selection.indices - {gpu.index for gpu in gpus}))),
            "uuids": [*sorted(selection.uuids - {gpu.uuid for gpu in gpus})],
            "pci": [*sorted(selection.pci - {gpu.pci for gpu in gpus})],
            "products": [one for one in selection.products if not any(matches(one, gpu.product) for gpu in gpus)],
        }
        for criterion, names in lacking.items():
            if names:
                yield f"select.{key}.{criterion}: this node has no GPU {', '.join(names)}"


# ---------------------------------------------------------------- sharing

_Shares = dict[GpuUuid, tuple[ResourceName, int]]


def _shares(config: Config, homes: Mapping[ResourceName, Sequence[Gpu]]) -> tuple[_Shares, tuple[str, ...]]:
    """Which GPUs are shared, under which name and by how many; the first entry that selects a GPU has it (CFG-10)."""
    shares: _Shares = {}
    notices: list[str] = []
    for number, entry in enumerate(config.time_slicing.resources):
        path = f"sharing.timeSlicing.resources[{number}]"
        owned = homes.get(entry.name, ())
        if not owned:
            notices.append(f"{path}: no GPU of this node is listed as {entry.name}, so the entry has no effect")
            continue
        chosen = [gpu for position, gpu in enumerate(owned) if _selects(entry.devices, gpu, position)]
        taken = [str(gpu.index) for gpu in chosen if gpu.uuid in shares]
        if taken:
            notices.append(
                f"{path}: an earlier entry shares GPU {', '.join(taken)} already, and it is the one that holds"
            )
        notices.extend(f"{path}.devices: {lack}" for lack in _lacking(entry, owned))
        for gpu in chosen:
            shares.setdefault(gpu.uuid, (entry.rename or entry.name, entry.replicas))
    return shares, tuple(notices)


def _selects(selector: DeviceSelector, gpu: Gpu, position: int) -> bool:
    """``position``: the GPU's place among those of its resource, by index."""
    if isinstance(selector, AllDevices):
        return True
    if isinstance(selector, FirstDevices):
        return position < selector.count
    return gpu.index in selector.indices or gpu.uuid in selector.uuids


def _lacking(entry: SharedResource, owned: Sequence[Gpu]) -> list[str]:
    """What the selector of an entry names and the resource does not have."""
    selector = entry.devices
    if isinstance(selector, AllDevices):
        return []
    if isinstance(selector, FirstDevices):
        if selector.count <= len(owned):
            return []
        return [f"{selector.count} GPUs are asked for, {entry.name} has {len(owned)}"]
    indices = sorted(selector.indices - {gpu.index for gpu in owned})
    named = [*map(str, indices), *sorted(selector.uuids - {gpu.uuid for gpu in owned}), *sorted(selector.mig)]
    return [f"{entry.name} has no device {name}" for name in named]


# ---------------------------------------------------------------- size


def tombstone_size(ids: Iterable[str], numa: bool) -> int:
    """Bytes that these ids take in a list while Unhealthy.

    An upper bound with ``numa``: one NUMA node each, of a number below 16384.
    """
    topology = _field(_field(1 + 2)) if numa else 0
    return sum(_device_size(len(name.encode()), topology) for name in ids)


def _excess(name: ResourceName, members: Sequence[_Member], reserved: int) -> Oversize | None:
    # Topology is sent for all ids of a resource or for none (kubelet.md 12).
    topology = all(gpu.numa is not None for gpu, _ in members)
    asked = max(group.replicas for _, group in members)

    def size_at(cap: int) -> int:
        return reserved + sum(
            _group_size(group, min(group.replicas, cap), gpu.numa if topology else None) for gpu, group in members
        )

    size = size_at(asked)
    if size <= LIST_LIMIT:
        return None
    return Oversize(
        resource=name,
        bytes=size,
        limit=LIST_LIMIT,
        replicas=asked,
        largest=bisect_right(range(1, asked + 1), LIST_LIMIT, key=size_at),
        gpus=tuple(gpu.uuid for gpu, _ in members),
    )


def _group_size(group: PlannedGroup, replicas: int, numa: int | None) -> int:
    """Bytes of a GPU's ids with every one Unhealthy, counted by number of digits instead of one by one."""
    topology = 0 if numa is None else _field(_field(1 + _varint(numa) if numa else 0))
    length = len(group.gpu.encode())
    if not group.replicas:
        return _device_size(length, topology)
    size, low, digits = 0, 0, 1
    while low < replicas:
        high = min(10**digits, replicas)
        size += (high - low) * _device_size(length + len("::") + digits, topology)
        low, digits = high, digits + 1
    return size


def _device_size(id_length: int, topology: int) -> int:
    """One entry of ListAndWatchResponse.devices: its id, its health, its topology field as already measured."""
    return _field(_field(id_length) + _field(len("Unhealthy")) + topology)


def _field(length: int) -> int:
    """A length-delimited protobuf field with a number below 16: tag, length, content."""
    return 1 + _varint(length) + length


def _varint(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
