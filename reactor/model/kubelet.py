"""What is known of the kubelet, as values."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

from msgspec import Struct

StreamId = NewType("StreamId", int)


LONGEST_DIRECTORY = 79
"""Bytes of a directory that leave room for the shortest name of a socket of ours."""
LONGEST_REGISTRY = LONGEST_DIRECTORY - 1
"""The same, where the name is hidden for a while."""


class Registration(StrEnum):
    """How the kubelet comes to know of a plugin."""

    SOCKET = "socket"
    """We call Register on kubelet.sock, once in each life of the kubelet."""
    WATCHER = "watcher"
    """It finds our socket in its plugins_registry and asks; a new life of it finds what is there by itself."""


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
