"""Ask a running agent over its admin socket.

Plain sockets: the standard library's HTTP client alone would cost more than all the rest of a ``status`` call. The
server closes after each answer and sends its length, so that reading to the end is all there is to it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

DEFAULT_SOCKET = "/run/gpu-reactor/agent.sock"
"""As in ``model/settings.py``, which is not loaded for a client."""
SECONDS = 10.0


class NoAgent(Exception):
    """Nobody could be asked; the text says what to do."""


def ask(path: str, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
    """One request to the agent at ``path``: (status, body)."""
    try:
        with _connect(path) as connection:
            connection.sendall(_request(method, target, body))
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    except OSError as exc:
        raise _no_agent(path, exc) from None
    return _parse(path, answer)


def follow(path: str, target: str) -> Iterator[bytes]:
    """The lines of an answer that comes piece by piece, each as soon as it is there; ends when the agent ends it."""
    try:
        with _connect(path) as connection, connection.makefile("rb") as answer:
            connection.sendall(_request("GET", target))
            first = answer.readline().split()
            while answer.readline().strip():
                pass  # headers
            if len(first) < 2 or first[1] != b"200":
                raise NoAgent(f"what answers at {path} does not give its events: {b' '.join(first).decode('latin-1')}")
            connection.settimeout(None)  # it may have nothing to say for hours
            yield from _lines(answer)
    except OSError as exc:
        raise _no_agent(path, exc) from None


def _lines(answer: BufferedReader) -> Iterator[bytes]:
    """Of a chunked body; a chunk may end within a line."""
    rest = b""
    while size := int(answer.readline().split(b";")[0].strip() or b"0", 16):
        *lines, rest = (rest + answer.read(size)).split(b"\n")
        answer.readline()
        yield from lines
    if rest:
        yield rest


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(SECONDS)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _request(method: str, target: str, body: bytes = b"") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _no_agent(path: str, exc: OSError) -> NoAgent:
    match exc:
        case FileNotFoundError():
            return NoAgent(f"no agent at {path}: is it running? If it has another --admin-socket, name that here")
        case ConnectionRefusedError():
            return NoAgent(f"no agent at {path}: the socket is left over from one that no longer runs")
        case PermissionError():
            return NoAgent(f"{path} is only for the user that runs the agent: become that user (root, as a rule)")
        case TimeoutError():
            return NoAgent(f"the agent at {path} does not answer within {SECONDS:.0f} s")
    return NoAgent(f"asking the agent at {path}: {exc}")


def _parse(path: str, answer: bytes) -> tuple[int, bytes]:
    head, found, body = answer.partition(b"\r\n\r\n")
    first, *headers = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if not found or len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdecimal():
        raise NoAgent(f"what answers at {path} is not an agent, or it went away while it answered")
    for header in headers:
        name, _, value = header.partition(":")
        if name.lower() == "content-length" and value.strip() != str(len(body)):
            raise NoAgent(f"the answer of the agent at {path} was cut short; try again")
    return int(words[1]), body
