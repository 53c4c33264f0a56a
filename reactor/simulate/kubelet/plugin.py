"""The plugin as the kubelet sees it: devices, options, answers, and an ``Endpoint`` to call.

Plain values and one protocol, so that the same device manager runs against a plugin in memory (under trio) and against
one behind a socket (under asyncio).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

MESSAGE_LIMIT = 4 * 1024 * 1024
"""What the kubelet's gRPC client takes in one message; exactly this much still passes."""

HEALTHY = "Healthy"


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of a list. Anything but exactly ``Healthy`` counts as unhealthy."""

    id: str
    health: str = HEALTHY
    numa: tuple[int, ...] = ()

    @property
    def healthy(self) -> bool:
        return self.health == HEALTHY


@dataclass(frozen=True, slots=True)
class Options:
    preferred: bool = False
    pre_start: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    container: str
    host: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class DeviceNode:
    container: str
    host: str
    permissions: str


@dataclass(frozen=True, slots=True)
class ContainerAnswer:
    """One container's part of an AllocateResponse."""

    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    cdi: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the runtime is told of a container, merged over its resources."""

    envs: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    devices: dict[str, DeviceNode] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()


def merge(answers: Sequence[ContainerAnswer]) -> RunOptions:
    """First come wins, except CDI names, which are united. The order of the answers is that of a Go map: random."""
    merged = RunOptions()
    cdi: dict[str, None] = {}
    for answer in answers:
        for name, value in answer.envs:
            merged.envs.setdefault(name, value)
        for mount in answer.mounts:
            merged.mounts.setdefault(mount.container, mount)
        for node in answer.devices:
            merged.devices.setdefault(node.container, node)
        for name, value in answer.annotations:
            merged.annotations.setdefault(name, value)
        cdi.update(dict.fromkeys(answer.cdi))
    return RunOptions(merged.envs, merged.mounts, merged.devices, merged.annotations, tuple(cdi))


class PluginError(Exception):
    """A call to the plugin failed. ``str()`` is what the pod's status will show."""


class KubeletPanic(Exception):
    """A real kubelet would have ended here with a nil dereference: the plugin broke it (spec/kubelet.md 14)."""


class KubeletGone(Exception):
    """The kubelet ended while it was waiting for the plugin."""


class Endpoint(Protocol):
    """One connected plugin. Every method raises PluginError and nothing else when the plugin fails it."""

    async def options(self) -> Options: ...

    async def allocate(self, ids: Sequence[str]) -> tuple[ContainerAnswer, ...]:
        """One response per request; there is always one request."""
        ...

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]: ...

    async def pre_start(self, ids: Sequence[str]) -> None: ...
