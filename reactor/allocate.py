"""What Allocate and GetPreferredAllocation answer, from one snapshot in memory. Pure.

Both cost what the request costs, touch no hardware and give the same answer to the same question. A refusal is text for
the pod's status (the kubelet passes it on word for word), so it is short and names the id and the cause. Preferring
never fails: the kubelet rejects the pod if it does (kubelet.md 8 and 10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from reactor.model.ids import DeviceId, GpuUuid, ResourceName, parse_device_id
from reactor.model.kubelet import Answer, Refusal
from reactor.model.snapshot import AnswerPolicy, Listed, Offer, Snapshot

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
VISIBLE_CHANNELS = "NVIDIA_IMEX_CHANNELS"
NO_DEVICES = "void"
"""An image may carry ``all`` itself, which an empty value does not overrule in every runtime (ALC-07)."""

MOUNT_ROOT = "/var/run/nvidia-container-devices"
"""With volume-mounts: a path below it that is mounted names a device. What is mounted there does not matter."""

CONTROL_NODE = "/dev/nvidiactl"
OPTIONAL_NODES = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")

_TEXT = 80


def answer(
    snapshot: Snapshot, resource: ResourceName, requests: Sequence[Sequence[str]]
) -> tuple[Answer, ...] | Refusal:
    """One answer a request, or the refusal of all of them.

    Two shares of one GPU are two ids and one device: the container sees it once (SHR-03).
    """
    offer = snapshot.offers.get(resource)
    if offer is None:
        return Refusal(message=f"{resource} is not served at present")
    answers = []
    for ids in requests:
        result = _answer(offer, snapshot.answers, ids)
        if isinstance(result, Refusal):
            return result
        answers.append(result)
    return tuple(answers)


def _answer(offer: Offer, policy: AnswerPolicy, ids: Sequence[str]) -> Answer | Refusal:
    chosen = []
    for name in ids:
        listed = offer.by_id.get(DeviceId(name))
        if listed is None:
            return _unknown(offer.resource, name)
        chosen.append(listed)
    if offer.single and len(ids) > 1 and any(listed.share is not None for listed in chosen):
        return Refusal(
            message=f"{len(ids)} of {offer.resource} requested, a container may have 1 (failRequestsGreaterThanOne)"
        )
    gpus: dict[GpuUuid, Listed] = {}
    for listed in chosen:
        if not listed.healthy or listed.gpu is None:
            return Refusal(message=f"{_cut(listed.id)} cannot be used: {listed.reason or 'not healthy'}")
        if listed.kept:
            return Refusal(message=f"{_cut(listed.id)} cannot be used: {listed.reason}", faulty=(listed.id,))
        gpus.setdefault(listed.gpu, listed)
    lacking = {listed.id: node for listed in chosen if (node := missing_node(policy, listed.minor))}
    if lacking:
        nodes = ", ".join(dict.fromkeys(lacking.values()))
        return Refusal(message=f"missing under {policy.dev_root}: {_cut(nodes)}", faulty=tuple(lacking))
    return _told(policy, gpus)


def _told(policy: AnswerPolicy, gpus: Mapping[GpuUuid, Listed]) -> Answer:
    """What a container with these GPUs is given, as the device plugin gives it; without any, nothing but that word."""
    if not gpus:
        return Answer(envs=((VISIBLE_DEVICES, NO_DEVICES),) if policy.envvar or policy.volume_mounts else ())
    names = [str(listed.index) if policy.indices else uuid for uuid, listed in gpus.items()]
    channels = [number for number in policy.channels if channel_node(number) in policy.nodes]
    envs = [(mode, "enabled") for mode in policy.modes]
    mounts: tuple[tuple[str, str], ...] = ()
    if policy.envvar or policy.volume_mounts:
        envs.append((VISIBLE_DEVICES, MOUNT_ROOT if policy.volume_mounts else ",".join(names)))
    if policy.envvar and channels:
        envs.append((VISIBLE_CHANNELS, ",".join(map(str, channels))))
    if policy.volume_mounts:
        paths = [*names, *(f"imex/{number}" for number in channels)]
        mounts = tuple((f"{MOUNT_ROOT}/{path}", "/dev/null") for path in paths)
    root = policy.dev_root.rstrip("/")
    nodes = (*_nodes(policy, gpus), *map(channel_node, channels)) if policy.device_specs else ()
    return Answer(envs=tuple(envs), mounts=mounts, devices=tuple((node, root + node, "rw") for node in nodes))


def _unknown(resource: ResourceName, name: str) -> Refusal:
    if parse_device_id(name) is None:
        # KBL-06: the kubelet keeps one endpoint a name; the ids then come from the list of whoever registered before.
        return Refusal(message=f"unknown device {_cut(name)}: does another device plugin register {resource} as well?")
    return Refusal(message=f"unknown device {_cut(name)}: {resource} does not list it (any more)")


def missing_node(policy: AnswerPolicy, minor: int | None) -> str:
    """A device node that a container with this GPU needs and that the last scan did not see; empty if all are there.

    The container would not start without it (ALC-04). What is optional is left out instead.
    """
    if not policy.nodes_known:
        return ""
    needed = (CONTROL_NODE, _gpu_node(minor)) if policy.device_specs else ()
    channels = map(channel_node, policy.channels) if policy.channels_required else ()
    return next((node for node in (*needed, *channels) if node not in policy.nodes), "")


def channel_node(number: int) -> str:
    """The node of an IMEX channel."""
    return f"/dev/nvidia-caps-imex-channels/channel{number}"


def _nodes(policy: AnswerPolicy, gpus: Mapping[GpuUuid, Listed]) -> Iterator[str]:
    yield CONTROL_NODE
    yield from (node for node in OPTIONAL_NODES if node in policy.nodes)
    yield from (_gpu_node(listed.minor) for listed in gpus.values())


def _gpu_node(minor: int | None) -> str:
    # Not by index, which is another number (ALC-03).
    return f"/dev/nvidia{minor}"


def _cut(name: str) -> str:
    return name if len(name) <= _TEXT else name[:_TEXT] + "..."


# ---------------------------------------------------------------- preference


def prefer(
    snapshot: Snapshot, resource: ResourceName, available: Sequence[str], must_include: Sequence[str], size: int
) -> tuple[str, ...]:
    """Up to ``size`` ids: ``must_include`` first, then the best of ``available`` that can be handed out.

    Shares come from the GPU with the fewest taken ones (SHR-01), or with the most if that is the policy; whole GPUs
    from as few NUMA nodes as possible. Fewer ids than ``size`` come back when no more can be used; the
    kubelet tops them up as it likes, and Allocate judges.
    """
    must = tuple(dict.fromkeys(must_include))[: max(size, 0)]
    offer = snapshot.offers.get(resource)
    needed = size - len(must)
    if offer is None or needed <= 0:
        return must
    free: dict[GpuUuid, list[Listed]] = {}
    taken: dict[GpuUuid, int] = {}
    wanted = set(available).difference(must_include)
    for group in offer.groups:
        for listed in group:
            if listed.gpu is None:
                continue
            if listed.healthy and not listed.kept and listed.id in wanted:
                free.setdefault(listed.gpu, []).append(listed)
            else:
                taken[listed.gpu] = taken.get(listed.gpu, 0) + 1
    if all(listed.share is None for gpu in free.values() for listed in gpu):
        beside = {offer.by_id[DeviceId(name)].numa for name in must if name in offer.by_id}
        picks = _gather([listed for gpu in free.values() for listed in gpu], beside, needed)
    else:
        picks = _pick_shares(free, taken, needed, -1 if snapshot.answers.packed else 1)
    return (*must, *(listed.id for listed in picks))


def _pick_shares(
    free: Mapping[GpuUuid, list[Listed]], taken: Mapping[GpuUuid, int], needed: int, direction: int
) -> list[Listed]:
    """The least used GPU first (the most used for ``direction`` -1), then the one picked least here, then by index.

    Of a GPU the lowest share.
    """
    heap: list[tuple[int, int, tuple[int, str], GpuUuid]] = []
    for gpu, ids in free.items():
        # Lowest last, to be popped. All but in that order already, which makes it linear.
        ids.sort(key=lambda listed: -1 if listed.share is None else listed.share, reverse=True)
        heap.append((direction * taken.get(gpu, 0), 0, _order(ids[-1]), gpu))
    heapify(heap)
    picks: list[Listed] = []
    while heap and len(picks) < needed:
        rank, picked, order, gpu = heappop(heap)
        picks.append(free[gpu].pop())
        if free[gpu]:
            heappush(heap, (rank + direction, picked + 1, order, gpu))
    return picks


def _gather(free: list[Listed], beside: set[tuple[int, ...]], needed: int) -> list[Listed]:
    """Whole GPUs: those beside the ones already chosen, then from as few NUMA nodes as will do, then by index."""
    rooms: dict[tuple[int, ...], list[Listed]] = {}
    for listed in sorted(free, key=_order):
        rooms.setdefault(listed.numa, []).append(listed)
    picks: list[Listed] = []
    for node in [node for node in rooms if node in beside]:
        picks.extend(rooms.pop(node)[: needed - len(picks)])
    while rooms and len(picks) < needed:
        rest = needed - len(picks)
        # The first room that holds all the rest; else the largest, which leads to the fewest, for rooms are disjoint.
        # Of equals max takes the first, and rooms are in the order of their lowest index.
        node = max(rooms, key=lambda node: min(len(rooms[node]), rest))
        picks.extend(rooms.pop(node)[:rest])
    return picks


def _order(listed: Listed) -> tuple[int, str]:
    return (-1 if listed.index is None else listed.index, listed.id)
