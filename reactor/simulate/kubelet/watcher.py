"""What the kubelet's plugin watcher knows of its directory, on no clock of its own: what is new there, what is gone.

Once a second it holds what it has registered against what is there. A socket that does not say who it is, or says what
the kubelet does not like, is asked again after 0.5 s, doubling up to two minutes. So is, from 1.37 on, one whose
dial-back failed, or that failed when it was told; before, that one counts as registered, and nothing comes of it any
more. Names that begin with a dot are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reactor.simulate.kubelet import texts

LOOP = 1.0
INFO_WITHIN = 1.0
"""Seconds within which a plugin has to say who it is."""
NOTIFY_WITHIN = 5.0
_FIRST, _LONGEST = 0.5, 122.0
_TYPE = "DevicePlugin"


@dataclass(frozen=True, slots=True)
class Info:
    """What a plugin says of itself."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]

    def wrong(self, socket: str) -> str | None:
        """Why a kubelet does not take it, before it dials back."""
        if self.type != _TYPE:
            return texts.unhandled(self.type, socket)
        if texts.SUPPORTED not in self.versions:
            told = " ".join(self.versions)
            return texts.not_valid(
                f"manager version, {texts.SUPPORTED}, is not among plugin supported versions [{told}]"
            )
        if not texts.valid_resource(self.name):
            return texts.not_valid(f"invalid name of device plugin socket: {texts.invalid_resource(self.name)}")
        return None


@dataclass(slots=True)
class _Waiting:
    delay: float
    until: float


@dataclass(slots=True)
class Watched:
    """Sockets by name, each with what tells one file under that name from the next."""

    registered: dict[str, tuple[object, str]] = field(default_factory=dict)
    """File and resource."""
    busy: set[str] = field(default_factory=set)
    _waiting: dict[str, _Waiting] = field(default_factory=dict)

    def gone(self, present: Mapping[str, object]) -> list[tuple[str, str]]:
        """Sockets that were registered and are not there any more, with their resources; they are forgotten."""
        lost = [(name, resource) for name, (file, resource) in self.registered.items() if present.get(name) != file]
        for name, _ in lost:
            del self.registered[name]
        return lost

    def fresh(self, present: Mapping[str, object], now: float) -> list[str]:
        """Sockets to begin with; each is busy until ``dialled`` or ``failed``."""
        found = [name for name in present if self._is_due(name, now)]
        self.busy.update(found)
        return found

    def _is_due(self, name: str, now: float) -> bool:
        if name.startswith(".") or name in self.registered or name in self.busy:
            return False
        waiting = self._waiting.get(name)
        return waiting is None or now >= waiting.until

    def dialled(self, name: str, file: object, resource: str) -> None:
        self.busy.discard(name)
        self.registered[name] = (file, resource)

    def failed(self, name: str, now: float) -> None:
        self.registered.pop(name, None)
        self.busy.discard(name)
        before = self._waiting.get(name)
        delay = _FIRST if before is None else min(2 * before.delay, _LONGEST)
        self._waiting[name] = _Waiting(delay, now + delay)
