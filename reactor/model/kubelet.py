"""What is known of the kubelet, as values."""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

StreamId = NewType("StreamId", int)


class SocketIdentity(Struct, frozen=True):
    """One life of kubelet.sock. The inode alone is reused at once, so the change time belongs to it."""

    inode: int
    ctime_ns: int


class Answer(Struct, frozen=True, kw_only=True):
    """One container's answer to Allocate."""

    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    """(container path, host path), writable"""
    devices: tuple[tuple[str, str, str], ...] = ()
    """(container path, host path, permissions)"""


class Refusal(Struct, frozen=True, kw_only=True):
    """Why an Allocate is refused. ``message`` is short: it is shown in the pod's status."""

    message: str
    faulty: tuple[str, ...] = ()
    """Ids at fault themselves: listed Unhealthy until the next good scan. Empty: it was the request's fault."""
