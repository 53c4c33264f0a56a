"""What is known of the kubelet, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

StreamId = NewType("StreamId", int)


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """One life of kubelet.sock. The inode alone is reused at once, so the change time belongs to it."""

    inode: int
    ctime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One container's answer to Allocate."""

    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    """(container path, host path), writable"""
    devices: tuple[tuple[str, str, str], ...] = ()
    """(container path, host path, permissions)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an Allocate is refused. ``message`` is short: it is shown in the pod's status."""

    message: str
    faulty: tuple[str, ...] = ()
    """Ids at fault themselves: listed Unhealthy until the next good scan. Empty: it was the request's fault."""
