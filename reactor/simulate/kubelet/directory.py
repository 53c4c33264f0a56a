"""What a kubelet does to the files around its sockets: the wipe, the checkpoint, the sockets themselves."""

from __future__ import annotations

import itertools
import os
import socket
import stat
from pathlib import Path

from reactor.simulate.kubelet.checkpoint import Books, parse
from reactor.simulate.kubelet.version import Version

CHECKPOINT = "kubelet_internal_checkpoint"
SOCKET = "kubelet.sock"

_temporary = itertools.count(10000)


def wipe(directory: Path, version: Version) -> None:
    """What a start removes: sockets and links to them; up to 1.32 every file but the checkpoint."""
    for entry in os.scandir(directory):
        if version.wipes_sockets_only:
            gone = _is_socket(entry)
        else:
            gone = not entry.is_dir(follow_symlinks=False) and entry.name != CHECKPOINT
        if gone:
            os.unlink(entry)


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat().st_mode)
    except OSError:  # a dangling link stays
        return False


def read_books(directory: Path) -> Books | None:
    try:
        return parse((directory / CHECKPOINT).read_bytes())
    except FileNotFoundError:
        return None


def write_books(directory: Path, books: Books) -> None:
    """By a temporary file and a rename, which is the noise that watchers of the directory hear."""
    temporary = directory / f".{next(_temporary)}"
    with open(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(books.text)
    os.replace(temporary, directory / CHECKPOINT)


def listen(path: Path) -> socket.socket:
    """A listening socket with a new file at this path. Closing it leaves the file."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.bind(os.fspath(path))
        os.chmod(path, 0o755)
    except OSError:
        sock.close()
        raise
    return sock


def joined(directory: Path, endpoint: str) -> str:
    """Where an endpoint leads, as the kubelet joins it: an absolute one is relative all the same, ".." leads out."""
    return os.path.normpath(f"{directory}/{endpoint}")
