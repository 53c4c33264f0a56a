"""(Config, GPUs) -> Plan: what the config asks of this inventory. Pure.

A plan holds each GPU at most once: under one resource and one identity (whole, or shared by n).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reactor.model.config import Config
from reactor.model.gpu import Gpu
from reactor.model.ids import GpuUuid, ResourceName


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """The ids of one GPU within a resource: the GPU as a whole (replicas 0) or shares 0..replicas-1."""

    gpu: GpuUuid
    replicas: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedResource:
    name: ResourceName
    groups: tuple[PlannedGroup, ...]
    """By GPU index."""
    single: bool = False
    """Refuse requests for more than one share (failRequestsGreaterThanOne)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversize:
    """A resource whose list would not fit into one message to the kubelet."""

    resource: ResourceName
    bytes: int
    limit: int
    replicas: int
    """What was asked for."""
    largest: int
    """The largest number of replicas that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    resources: tuple[PlannedResource, ...] = ()
    """By name."""
    unlisted: Mapping[GpuUuid, str] = field(default_factory=dict)
    """GPUs that no resource lists, each with the reason."""
    oversize: tuple[Oversize, ...] = ()
    """Resources left out because they would not fit; the caller keeps what it had."""
    notices: tuple[str, ...] = ()
    """What in the config has no effect on this inventory, for people."""


EMPTY = Plan()


def make_plan(config: Config, gpus: Sequence[Gpu], reserved: Mapping[ResourceName, int] | None = None) -> Plan:
    """What ``config`` asks of ``gpus``.

    ``reserved``: bytes that tombstones take in the list of a resource; the size guard counts them.
    """
    raise NotImplementedError
