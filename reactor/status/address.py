"""host:port as people write it for --probe-listen."""

from __future__ import annotations

from reactor.model.errors import Refused


def parse_listen(text: str) -> tuple[str, int]:
    """``127.0.0.1:9465``, ``[::1]:9465``, ``:9465`` (every address) to (host, port); port 0: any free one."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise Refused(f"{text!r}: write an IPv6 address in brackets, such as [::1]:9465")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise Refused(f"{text!r} is not host:port, such as 127.0.0.1:9465 (port 0 to 65535)")
    return host, int(port)
