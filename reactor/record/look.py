"""Small readings of the state that lines need. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from reactor.model.gpu import Gpu
from reactor.model.ids import DeviceId, GpuUuid, parse_device_id
from reactor.record.line import SHOWN
from reactor.state import State


def cut(items: Iterable[str]) -> tuple[str, ...]:
    """As many as a line shows."""
    return tuple(items)[:SHOWN]


def find(state: State, gpu: GpuUuid) -> Gpu | None:
    return next((known for known in state.gpus if known.uuid == gpu), None)


def address(gpu: GpuUuid, *states: State) -> str:
    """PCI address of a GPU, also of one that is gone; empty if no state knows it."""
    for state in states:
        known = find(state, gpu)
        if known is not None:
            return known.pci
    return next((state.pci[gpu] for state in states if gpu in state.pci), "")


def name(gpu: GpuUuid, *states: State) -> str:
    """A GPU for people: its index if it has one, else its UUID."""
    known = next((known for known in (find(state, gpu) for state in states) if known is not None), None)
    return f"GPU {known.index}" if known is not None else str(gpu)


def listed(state: State, gpu: GpuUuid) -> int:
    """Ids that stand in the lists for this GPU: planned ones and those that leave."""
    planned = sum(
        max(group.replicas, 1) for resource in state.plan.resources for group in resource.groups if group.gpu == gpu
    )
    return planned + sum(1 for leaving in state.leaving.values() if leaving.gpu == gpu)


def gpus_of(ids: Iterable[DeviceId]) -> tuple[str, ...]:
    """The physical GPUs behind ids, once each, in their order."""
    refs = (parse_device_id(device) for device in ids)
    return tuple(dict.fromkeys(str(ref.gpu) for ref in refs if ref is not None))


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
