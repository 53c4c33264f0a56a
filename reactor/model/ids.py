"""Typed identifiers, and the one place that knows how a device id is spelt for the kubelet."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NewType

from msgspec import Struct

GpuUuid = NewType("GpuUuid", str)
ResourceName = NewType("ResourceName", str)
DeviceId = NewType("DeviceId", str)
PciAddress = NewType("PciAddress", str)


class Identity(StrEnum):
    """Under which kind of id a physical GPU is handed out; it is never handed out under two at once."""

    WHOLE = "whole"
    SHARED = "shared"
    FOREIGN = "foreign"
    """An id that is not of our spelling, left in the kubelet's books by another plugin."""


class DeviceRef(Struct, frozen=True):
    """What a device id means: a GPU, and which share of it (None: the GPU as a whole)."""

    gpu: GpuUuid
    share: int | None

    @property
    def identity(self) -> Identity:
        return Identity.WHOLE if self.share is None else Identity.SHARED


_UUID = r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE_ID = re.compile(rf"({_UUID})(?:::(0|[1-9][0-9]*))?")


def device_id(gpu: GpuUuid, share: int | None = None) -> DeviceId:
    """Spell the id that the kubelet sees: ``GPU-uuid``, or ``GPU-uuid::n`` for share n."""
    return DeviceId(gpu if share is None else f"{gpu}::{share}")


def parse_device_id(text: str) -> DeviceRef | None:
    """Read a device id; None if it is not of our spelling (another plugin's, an old legacy form)."""
    match = _DEVICE_ID.fullmatch(text)
    if match is None:
        return None
    return DeviceRef(GpuUuid(match[1]), None if match[2] is None else int(match[2]))


def identity_of(text: str) -> Identity:
    """The identity that an id hands its GPU out under."""
    ref = parse_device_id(text)
    return Identity.FOREIGN if ref is None else ref.identity
