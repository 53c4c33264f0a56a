"""The bytes of the config file."""

from __future__ import annotations

from pathlib import Path

import trio

from reactor.config.document import MAX_BYTES
from reactor.model.errors import Transient


async def fetch(path: Path) -> bytes:
    """One reading, at most one byte more than is accepted. Transient: it cannot be read now."""
    try:
        # Abandoned when cancelled: a file on a dead mount must not keep the agent from its end.
        return await trio.to_thread.run_sync(_read, path, abandon_on_cancel=True)
    except OSError as exc:
        raise Transient(f"the config file cannot be read: {exc.strerror}") from exc


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)
