"""An offer as the bytes of one ListAndWatch message.

The message has one repeated field, so the encodings of its parts, one after the other, are the encoding of the whole:
each group is encoded once and kept, and a change of one GPU in many thousand ids costs that GPU.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet.groups import Group, PerGroup
from reactor.model.snapshot import Offer

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


class EncodedList(Struct, frozen=True):
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
    return _entries(group, placed=False)


def _placed(group: Group) -> bytes:
    return _entries(group, placed=True)


def _entries(group: Group, *, placed: bool) -> bytes:
    """The entries of the list: each is field 1, a message that begins with the id, field 1 too, and ends as its equals.

    Written by hand: building a message object for each of 60 000 ids would keep Allocate waiting for 0.1 s. What stands
    before an id depends on its length alone, as long as the ends are equal.
    """
    parts: list[bytes] = []
    heads: dict[int, bytes] = {}
    healthy: bool | None = None
    numa: tuple[int, ...] = ()
    tail = b""
    for listed in group:
        if listed.healthy is not healthy or (placed and listed.numa != numa):
            healthy, numa, heads = listed.healthy, listed.numa, {}
            tail = _tail(healthy, numa if placed else ())
        raw = listed.id.encode()
        head = heads.get(len(raw))
        if head is None:
            inner = _FIELD_1 + _varint(len(raw))
            head = heads[len(raw)] = _FIELD_1 + _varint(len(inner) + len(raw) + len(tail)) + inner
        parts += (head, raw, tail)
    return b"".join(parts)


_FIELD_1 = b"\x0a"


@lru_cache(maxsize=1024)
def _tail(healthy: bool, numa: tuple[int, ...]) -> bytes:
    """What follows the id: the same for all ids of one health and place."""
    device = pb.Device(health=HEALTHY if healthy else UNHEALTHY)
    if numa:
        device.topology.CopyFrom(pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in numa]))
    return device.SerializeToString()


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
