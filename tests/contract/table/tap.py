"""A wire tap: a socket in front of a plugin's own, that notes the request headers which the kubelet sends.

It can keep back what the plugin says, so that the kubelet hears it at once with the plugin's end.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

Headers = dict[str, str]


class Tap:
    def __init__(self, path: Path, plugin: Path) -> None:
        self.requests: list[Headers] = []
        self._keeping = False
        self._kept = b""
        self._said = threading.Condition()
        self._plugin = plugin
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def of(self, method: str) -> Headers:
        """The headers of the first call of this method."""
        return next(each for each in self.requests if each[":path"].endswith(f"/{method}"))

    def keep(self) -> None:
        """From now on the kubelet hears nothing from the plugin until that hangs up, and then all of it."""
        with self._said:
            self._keeping = True

    def until_kept(self, words: bytes, seconds: float = 10) -> bool:
        """Wait until these words of the plugin are kept."""
        with self._said:
            return self._said.wait_for(lambda: words in self._kept, seconds)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                kubelet, _ = self._listener.accept()
                plugin = socket.socket(socket.AF_UNIX)
                plugin.connect(str(self._plugin))
                self._open += [kubelet, plugin]
                threading.Thread(target=self._listen_in, args=(kubelet, plugin), daemon=True).start()
                threading.Thread(target=self._pass, args=(plugin, kubelet), daemon=True).start()

    def _listen_in(self, kubelet: socket.socket, plugin: socket.socket) -> None:
        """Pass on what the kubelet sends, and read it as a server would that never answers."""
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.initiate_connection()
        with suppress(OSError):
            while data := kubelet.recv(1 << 16):
                for event in h2.receive_data(data):
                    if isinstance(event, RequestReceived):
                        self.requests.append({str(name): str(value) for name, value in event.headers or ()})
                plugin.sendall(data)
        _hang_up(kubelet, plugin)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._said:
                    if not self._keeping:
                        sink.sendall(data)
                        continue
                    self._kept += data
                    self._said.notify_all()
            sink.sendall(self._kept)
        _hang_up(source, sink)


def _hang_up(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def tapped(path: Path, plugin: Path) -> Iterator[Tap]:
    tap = Tap(path, plugin)
    try:
        yield tap
    finally:
        tap.close()
        path.unlink(missing_ok=True)
