"""A line and its envelope -> bytes: one JSON object, under 12 KiB whatever is in it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from reactor.record.line import VERSION, Line

LIMIT = 12 * 1024
"""Container runtimes split lines at 16 KiB."""

_ENCODER = msgspec.json.Encoder()


class Stamp(Struct, frozen=True, kw_only=True):
    """What every line carries of the event that it tells of."""

    seq: int
    cause: int | None
    ts: str
    run: str
    node: str


def timestamp(wall: float) -> str:
    """Unix time as RFC 3339 in UTC, with microseconds."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode(line: Line, stamp: Stamp) -> bytes:
    """Long texts are cut, harder and harder until the line is short enough."""
    head: dict[str, object] = {
        "v": VERSION,
        "ts": stamp.ts,
        "level": line.level,
        "event": line.event,
        "seq": stamp.seq,
        "run": stamp.run,
    }
    if stamp.cause is not None:
        head["cause"] = stamp.cause
    head["node"] = stamp.node
    body: dict[str, object] = msgspec.to_builtins(line)
    told = head | {name: value for name, value in body.items() if name not in head and name != "msg"}
    told["msg"] = line.msg
    for longest in (1024, 256, 64, 16):
        encoded = _ENCODER.encode(_cut(told, longest))
        if len(encoded) < LIMIT:
            break
    return encoded + b"\n"


def _cut(value: object, longest: int) -> object:
    if isinstance(value, str):
        # Names of files may hold lone surrogates, which are no JSON.
        text = value if value.isascii() else value.encode("utf-8", "replace").decode()
        return text if len(text) <= longest else text[: longest - 1] + "…"
    if isinstance(value, dict):
        return {name: _cut(item, longest) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(item, longest) for item in value]
    return value
