"""The topology manager: hints of each resource, merged by a policy into the NUMA nodes of a container.

Pure functions on NUMA masks (bit n is node n). Written against the tables of spec/kubelet.md 12.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reactor.simulate.kubelet.plugin import Device, KubeletPanic


class Policy(StrEnum):
    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


@dataclass(frozen=True, slots=True)
class Hint:
    mask: int | None
    """None: any node will do."""
    preferred: bool


def mask_of(nodes: Iterable[int]) -> int:
    """Bits of the nodes that can be bits: a kubelet drops negative ones, and 64 and above."""
    return sum(1 << node for node in set(nodes) if 0 <= node < 64)


def nodes_of(mask: int) -> Iterator[int]:
    return (node for node in range(mask.bit_length()) if mask >> node & 1)


def _masks(nodes: Sequence[int]) -> Iterator[int]:
    for size in range(1, len(nodes) + 1):
        yield from map(mask_of, itertools.combinations(nodes, size))


def aligned(devices: Mapping[str, Device]) -> bool:
    """One device with a node list, healthy or not, is enough for a resource to be aligned."""
    return any(each.numa for each in devices.values())


def device_hints(
    devices: Mapping[str, Device],
    available: Iterable[str],
    reusable: Iterable[str],
    wanted: int,
    nodes: Sequence[int],
    *,
    panics: bool,
) -> list[Hint]:
    """Node sets that can serve ``wanted`` devices. An id that is not listed is a nil dereference where ``panics``."""

    def numa_masks(ids: Iterable[str]) -> list[int]:
        found = []
        for each in ids:
            device = devices.get(each)
            if device is None and panics:
                raise KubeletPanic(f"nil dereference in generateDeviceTopologyHints: {each} is not listed")
            if device is not None and device.numa:
                found.append(mask_of(device.numa))
        return found

    listed = [mask_of(each.numa) for each in devices.values()]
    free, taken = numa_masks(available), numa_masks(reusable)
    smallest = len(nodes)
    masks = []
    for mask in _masks(nodes):
        size = mask.bit_count()
        if size < smallest and sum(1 for each in listed if mask & each) >= wanted:
            smallest = size
        if any(not mask & each for each in taken):
            continue
        if len(taken) + sum(1 for each in free if mask & each) >= wanted:
            masks.append(mask)
    return [Hint(mask, mask.bit_count() == smallest) for mask in masks]


def hosting(devices: Mapping[str, Device], nodes: Sequence[int]) -> list[int]:
    """The NUMA nodes that host a device of the resource: all that 1.36 and later enumerate."""
    hosted = mask_of(node for each in devices.values() for node in each.numa)
    return [node for node in nodes if hosted >> node & 1]


def merge(policy: Policy, nodes: Sequence[int], hints: Sequence[list[Hint] | None]) -> Hint:
    """Merge the hints of all resources of a container. None: the resource does not care; empty: it cannot be had."""
    providers = [_provider(each) for each in hints]
    if policy is Policy.SINGLE:
        providers = [[hint for hint in each if _single(hint)] for each in providers]
    everywhere = mask_of(nodes)
    best: Hint | None = None
    for combination in itertools.product(*providers):
        mask = everywhere
        for hint in combination:
            mask &= everywhere if hint.mask is None else hint.mask
        preferred = all(hint.preferred for hint in combination)
        if mask and (best is None or _better(Hint(mask, preferred), best)):
            best = Hint(mask, preferred)
    if best is None:
        best = Hint(everywhere, False)
    if policy is Policy.SINGLE and best.mask == everywhere:
        return Hint(None, best.preferred)
    return best


def _provider(hints: list[Hint] | None) -> list[Hint]:
    if hints is None:
        return [Hint(None, True)]
    return hints or [Hint(None, False)]


def _single(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _better(new: Hint, old: Hint) -> bool:
    assert new.mask is not None
    assert old.mask is not None
    if new.preferred != old.preferred:
        return new.preferred
    narrower = new.mask.bit_count() - old.mask.bit_count()
    return narrower < 0 or (narrower == 0 and new.mask < old.mask)


def admits(policy: Policy, hint: Hint) -> bool:
    return hint.preferred or policy not in (Policy.RESTRICTED, Policy.SINGLE)


def split_by_affinity(
    devices: Mapping[str, Device],
    available: frozenset[str],
    hint: Hint | None,
    pick: Callable[[Iterable[str]], list[str]],
) -> tuple[list[str], list[str], list[str]]:
    """Available ids on the hinted nodes, on other nodes, and on none. Without alignment, all are of the third kind."""
    if hint is None or hint.mask is None or not aligned(devices):
        return [], [], pick(available)
    near, far, nowhere = [], [], []
    for each in pick(available):
        numa = devices[each].numa
        if not numa:
            nowhere.append(each)
        elif mask_of(numa) & hint.mask:
            near.append(each)
        else:
            far.append(each)
    return near, far, nowhere
