"""Ask a running agent over its admin socket.

Plain sockets: the standard library's HTTP client alone would cost more than all the rest of a ``status`` call. The
server closes after each answer and sends its length, so that reading to the end is all there is to it.
"""

from __future__ import annotations

import socket

DEFAULT_SOCKET = "/run/gpu-reactor/agent.sock"
"""As in ``model/settings.py``, which is not loaded for a client."""
SECONDS = 10.0


class NoAgent(Exception):
    """Nobody could be asked; the text says what to do."""


def ask(path: str, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
    """One request to the agent at ``path``: (status, body)."""
    head = f"{method} {target} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(SECONDS)
            connection.connect(path)
            connection.sendall(head.encode() + body)
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    except FileNotFoundError:
        raise NoAgent(f"no agent at {path}: is it running? If it has another --admin-socket, name that here") from None
    except ConnectionRefusedError:
        raise NoAgent(f"no agent at {path}: the socket is left over from one that no longer runs") from None
    except PermissionError:
        raise NoAgent(f"{path} is only for the user that runs the agent: become that user (root, as a rule)") from None
    except TimeoutError:
        raise NoAgent(f"the agent at {path} does not answer within {SECONDS:.0f} s") from None
    except OSError as exc:
        raise NoAgent(f"asking the agent at {path}: {exc}") from exc
    return _parse(path, answer)


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
