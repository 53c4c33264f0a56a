"""The simulated functions in a worker, over hardware that another process keeps (``host``).

One connection a thread, so that a wait or a hang in one thread leaves the others free. This is also where a script gets
at the hardware of a running node: ``Control``.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Sequence

from reactor.simulate.nvml.codes import Value
from reactor.simulate.nvml.functions import SimulatedLibrary

_UNKNOWN = 999
_LARGEST = 1 << 18


def library(path: str) -> SimulatedLibrary:
    """The provider that a worker is told: ``reactor.simulate.nvml.remote:library:PATH``."""
    return SimulatedLibrary(Remote(path))


class Connection:
    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(path)

    def ask(self, request: object) -> object:
        self._socket.send(json.dumps(request).encode())
        data = self._socket.recv(_LARGEST)
        if not data:
            raise ConnectionResetError("the simulated hardware is gone")
        answer: object = json.loads(data)
        return answer

    def close(self) -> None:
        self._socket.close()


class Remote:
    def __init__(self, path: str) -> None:
        self._path = path
        self._session = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._thread = threading.local()
        self._made: list[Connection] = []
        missing = self._connect().ask(["missing"])
        self.missing = frozenset(map(str, missing)) if isinstance(missing, list) else frozenset()

    def _connect(self) -> Connection:
        made = Connection(self._path)
        made.ask(["session", self._session])
        self._thread.connection = made
        self._made.append(made)
        return made

    def close(self) -> None:
        """As the end of the process would."""
        for made in self._made:
            made.close()

    def call(self, function: str, arguments: Sequence[Value]) -> tuple[int, list[Value]]:
        try:
            connection: Connection = getattr(self._thread, "connection", None) or self._connect()
            answer = connection.ask(["call", function, *arguments])
        except OSError:
            return (_UNKNOWN, [])
        assert isinstance(answer, list)
        return (answer[0], answer[1:])


class Control:
    """Tells the hardware of a running node what happens: ``Control(path).do("xid", 0, 79)``. Blocks; for scripts."""

    def __init__(self, path: str) -> None:
        self._connection = Connection(path)

    def do(self, method: str, *arguments: Value | None) -> int:
        """Call a method of ``Hardware``: when that was (monotonic ns). Raises RuntimeError with its complaint."""
        answer = self._connection.ask(["do", method, *arguments])
        if not isinstance(answer, dict) or "at" not in answer:
            raise RuntimeError(str(answer["error"] if isinstance(answer, dict) else answer))
        return int(answer["at"])

    def close(self) -> None:
        self._connection.close()
