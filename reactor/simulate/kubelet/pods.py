"""Pods: what the API server has, and what this life of the kubelet knows of it.

``ApiServer`` outlives the kubelet, as does what the container runtime runs; ``Pod`` carries both. The kubelet itself
keeps only names (``KubeletCore.known``) and forgets them with every start.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from reactor.model.hold import PodRef
from reactor.simulate.kubelet.plugin import RunOptions


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    limits: Mapping[str, int] = field(default_factory=dict)
    sidecar: bool = False
    """An init container that keeps running (restartPolicy Always)."""


@dataclass(slots=True, eq=False)
class Pod:
    ref: PodRef
    uid: str
    containers: tuple[Container, ...]
    init: tuple[Container, ...] = ()
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    running: frozenset[str] = frozenset()
    """Containers that the runtime has running: a restart of the kubelet does not touch them, a reboot does."""
    told: dict[str, RunOptions] = field(default_factory=dict)
    """What the runtime was told at the last start of each container."""

    @property
    def over(self) -> bool:
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    def all_containers(self) -> Iterator[Container]:
        """In the order in which they are admitted."""
        yield from self.init
        yield from self.containers

    def started(self) -> frozenset[str]:
        """Containers that run once the pod is up: plain init containers have ended by then."""
        return frozenset(each.name for each in self.all_containers() if each.sidecar or each in self.containers)

    def request(self, resource: str) -> int:
        """What the scheduler counts: the apps with all sidecars, or a plain init container with those before it."""
        most = sidecars = 0
        for each in self.init:
            wanted = each.limits.get(resource, 0)
            most = max(most, sidecars + wanted)
            sidecars += wanted if each.sidecar else 0
        return max(most, sidecars + sum(each.limits.get(resource, 0) for each in self.containers))

    def reject(self, reason: str, message: str) -> None:
        self.phase, self.reason, self.message = Phase.FAILED, reason, f"Pod was rejected: {message}"
        self.running = frozenset()


class ApiServer:
    """The pods bound to this node, by (namespace, name)."""

    def __init__(self) -> None:
        self.pods: dict[PodRef, Pod] = {}
        self.answering = True
        self._uids = itertools.count(1)

    def create(
        self,
        name: str,
        limits: Mapping[str, int] | None = None,
        *,
        namespace: str = "default",
        containers: Sequence[Container] = (),
        init: Sequence[Container] = (),
    ) -> Pod:
        """Bind a pod to the node: one container ``c`` with these limits, unless containers are given."""
        ref = PodRef(namespace, name)
        if ref in self.pods:
            raise ValueError(f"pod {ref} exists")
        uid = f"00000000-0000-4000-8000-{next(self._uids):012x}"
        shape = tuple(containers) or (Container("c", dict(limits or {})),)
        self.pods[ref] = pod = Pod(ref, uid, shape, tuple(init))
        return pod

    def delete(self, name: str, namespace: str = "default") -> Pod | None:
        return self.pods.pop(PodRef(namespace, name), None)

    def find(self, name: str, namespace: str = "default") -> Pod:
        return self.pods[PodRef(namespace, name)]
