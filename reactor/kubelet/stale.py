"""Socket files of earlier lives of this agent: found by name, removed when nobody listens behind them.

Those that were still hidden from the kubelet's plugin watcher are found as well.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from contextlib import suppress

log = logging.getLogger(__name__)

PREFIX = "gpu-reactor-"
HIDDEN = "."
"""The kubelet's plugin watcher passes over names that begin so."""


def sweep(directory: str) -> tuple[str, ...]:
    """Remove our own dead sockets from a directory; returns their names. Never touches one that is listened on."""
    removed = []
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if (
                entry.name.removeprefix(HIDDEN).startswith(PREFIX)
                and entry.name.endswith(".sock")
                and _is_dead(entry.path)
            ):
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)
                    removed.append(entry.name)
    if removed:
        log.info("sockets.swept", extra={"count": len(removed)})
    return tuple(removed)


def _is_dead(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        return sock.connect_ex(path) == errno.ECONNREFUSED
