"""Who has which id. A hold starts with a grant or with the kubelet's books and ends on the rules of design.md 5."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from reactor.model.ids import DeviceId, GpuUuid, Identity, ResourceName


class PodRef(Struct, frozen=True, order=True):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class HoldKey(msgspec.Struct, frozen=True, gc=False):
    """A struct, for it is hashed more than anything else here."""

    resource: ResourceName
    id: DeviceId


class Hold(Struct, frozen=True, kw_only=True):
    """One id that a pod has, or that an Allocate just handed out.

    Times named ``*_at`` are on the agent's monotonic clock, ``since`` is Unix time (it is kept on disk).
    """

    resource: ResourceName
    id: DeviceId
    gpu: GpuUuid | None
    """None: an id of another plugin's spelling, kept listed because the kubelet still counts on it."""
    identity: Identity
    numa: tuple[int, ...] = ()
    since: float
    pod: PodRef | None = None
    pod_uid: str | None = None
    ours: bool = True
    """Whether this agent granted it (now or in an earlier life): only then is its resource served for its sake."""
    grant: int = 0
    """Number of the grant in this run of the agent, 0 if it was learnt otherwise."""
    granted_at: float | None = None
    """Set until the kubelet's books have shown the grant (rule 3 waits for that)."""
    in_checkpoint: bool = False
    """Whether the checkpoint of this life of the kubelet has shown it."""
    suspended: bool = False
    """The kubelet's books lost it across its restart while its pod may run on: only the pod's end frees it."""
    rebooted: bool = False
    """The node booted anew since: nobody runs who had it, and it ends unless the kubelet's books still name it."""
    lacked_at: float | None = None
    """First List that lacked the id."""
    resent_at: float | None = None
    """When a list of its resource was sent more than 1 s after that (rule 1)."""
    shown: bool = False
    """Whether a List of this life of the kubelet had the id (it never has that of a plain init container)."""
    pod_seen: bool = False
    """Whether its pod was in a List of this life of the kubelet."""
    pod_gone_at: float | None = None
    """First List that lacked the pod after it was seen (rule 2)."""

    @property
    def key(self) -> HoldKey:
        return HoldKey(self.resource, self.id)


class PodDevices(Struct, frozen=True, kw_only=True):
    """What podresources List says of one pod."""

    pod: PodRef
    devices: tuple[tuple[ResourceName, DeviceId, tuple[int, ...]], ...]
    """(resource, id, NUMA nodes), merged over containers; empty for a pod without devices."""


class CheckpointEntry(Struct, frozen=True, kw_only=True):
    """One id in the kubelet's checkpoint. Entries of plain init containers stand there as long as the pod."""

    pod_uid: str
    container: str
    resource: ResourceName
    id: DeviceId
    numa: tuple[int, ...] = ()


class Checkpoint(Struct, frozen=True, kw_only=True):
    entries: tuple[CheckpointEntry, ...]
    resources: frozenset[ResourceName] = frozenset()
    """Resources that the kubelet knows: a kubelet that reads its file again names them before any plugin is back."""
