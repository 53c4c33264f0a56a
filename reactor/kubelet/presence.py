"""Whether a kubelet is there: the identity of its socket, and whether anybody accepts behind it.

Nothing here blocks: a stat and a non-blocking connect on a unix socket answer in microseconds.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from reactor.model.kubelet import SocketIdentity


def identity(path: Path) -> SocketIdentity | None:
    """The socket's identity; None if there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return SocketIdentity(inode=stat.st_ino, ctime_ns=stat.st_ctime_ns)


def deleted(directory: Path) -> bool:
    """Whether what is seen there has no name any more: a mount of it goes on showing it, empty and closed for ever.

    Where it is seen by its name, it is either there or it is not.
    """
    try:
        return os.stat(directory).st_nlink == 0
    except OSError:
        return False


def look(path: Path) -> SocketIdentity | str:
    """The identity of a socket that accepts connections, or why there is none.

    The kubelet removes what is in its directory before it listens: once this gives an identity, that is over.
    """
    before = identity(path)
    if before is None:
        return f"{path} is missing"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sock:
            code = sock.connect_ex(os.fspath(path))
    except OSError as exc:
        return f"{path}: {exc}"
    if code not in (0, errno.EAGAIN):  # EAGAIN: somebody listens and is slow to accept
        return f"{path}: {os.strerror(code)}"
    return before if identity(path) == before else f"{path} is being replaced"
