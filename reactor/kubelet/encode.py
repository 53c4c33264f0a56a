"""An offer as the bytes of one ListAndWatch message.

The message has one repeated field, so the encodings of its parts, one after the other, are the encoding of the whole:
each group is encoded once and kept, and a change of one GPU in many thousand ids costs that GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet.groups import Group, PerGroup
from reactor.model.snapshot import Listed, Offer

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True)
class EncodedList:
    """A ListAndWatchResponse that is encoded already, in the shape that gRPC takes messages in."""

    data: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that gRPC calls
        return self.data

    @classmethod
    def FromString(cls, data: bytes) -> EncodedList:  # noqa: N802
        return cls(data)


class ListEncoder:
    """Encodes the offers of one resource."""

    def __init__(self) -> None:
        self._plain = PerGroup(_plain)
        self._placed = PerGroup(_placed)
        self._newest: tuple[Offer, EncodedList] | None = None

    def encode(self, offer: Offer) -> EncodedList:
        if self._newest is None or self._newest[0] is not offer:
            groups = self._placed if offer.topology else self._plain
            self._newest = (offer, EncodedList(b"".join(groups.of(offer))))
        return self._newest[1]


def list_bytes(offer: Offer) -> int:
    """Size of the message for this offer. The kubelet takes 4 MiB and drops the whole resource above that."""
    return len(ListEncoder().encode(offer).data)


def _plain(group: Group) -> bytes:
    return pb.ListAndWatchResponse(devices=[_device(listed) for listed in group]).SerializeToString()


def _placed(group: Group) -> bytes:
    devices = [_device(listed) for listed in group]
    for listed, device in zip(group, devices, strict=True):
        if listed.numa:
            device.topology.CopyFrom(pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in listed.numa]))
    return pb.ListAndWatchResponse(devices=devices).SerializeToString()


def _device(listed: Listed) -> pb.Device:
    return pb.Device(ID=listed.id, health=HEALTHY if listed.healthy else UNHEALTHY)
