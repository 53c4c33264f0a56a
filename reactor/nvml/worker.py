"""The child process that makes NVML calls, so that a call that hangs in the kernel hangs nobody else.

Three threads: one serves requests, one waits for events, one waits for the agent to go away. They speak with the client
over one socket of whole messages (SOCK_SEQPACKET, JSON), where a message is sent by a single system call and needs no
lock. While a request takes long, the third one says which GPU is touched: so the client knows where a call hung.
Lean on purpose: no trio, no typing, no dataclasses, no package beside pynvml.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time

from reactor.nvml import loading
from reactor.nvml.library import Library, Record
from reactor.nvml.loading import NvmlFailed
from reactor.nvml.watch import Watch

BEAT = 5.0
"""Seconds between two signs of life of the event watch."""
LONG = 50
"""Milliseconds of a request after which it is said where it is, and said anew when it is elsewhere."""
LARGEST = 1 << 18


class Worker:
    def __init__(self, connection: socket.socket, given: Record) -> None:
        self._connection = connection
        self._driver_root = str(given["driver_root"])
        self._dev_root = str(given["dev_root"])
        self._sys_root = str(given["sys_root"])
        self._provider = str(given["provider"])
        self._wait_ms = int(str(given["wait_ms"]))
        self._library: Library | None = None
        self._loaded: tuple[str, int, int] | None = None
        self._told: set[str] = set()
        self._bell, self._begun = socket.socketpair()
        """Rung when a request is begun."""
        self._busy = False
        self._touches = 0
        self._touched: int | None = None
        self._opening: float | None = None
        """Seconds of the initialisation, until they are told."""

    def tell(self, message: Record) -> None:
        try:
            self._connection.send(json.dumps(message).encode())
        except OSError:
            os._exit(0)  # the agent is gone

    def serve(self) -> None:
        """Answer requests until the client closes its end."""
        threading.Thread(target=self._guard, daemon=True).start()
        self.tell({"kind": "hello", "pid": os.getpid()})
        while data := self._received():
            request = json.loads(data)
            self._busy = True
            self._bell.send(b"!")
            try:
                answer = self._scan(frozenset(request["skip"]))
            except NvmlFailed as exc:
                # The driver is gone, or the library may be older than it: only a new process gets to it again.
                spent = self._opened or exc.state == "mismatch"
                answer = {"kind": "failed", "state": exc.state, "error": str(exc), "spent": spent}
            self._busy = False
            self.tell(answer)

    def _received(self) -> bytes:
        """The next request; empty if the agent is gone, which a kernel tells by a reset if it had not read all."""
        try:
            return self._connection.recv(LARGEST)
        except ConnectionResetError:
            return b""

    @property
    def _opened(self) -> bool:
        return self._library is not None

    def _scan(self, skip: frozenset[int]) -> Record:
        if self._library is None:
            stale = self._open()
            if stale:
                return {"kind": "renew", "error": stale}
        assert self._library is not None
        moved = self._library.moved()
        if moved:
            return {"kind": "renew", "error": moved}
        self._watch.skip = skip
        begun = time.monotonic()
        found = self._library.scan(skip)
        took = time.monotonic() - begun
        opened, self._opening = self._opening, None
        for what, error in self._library.without.items():
            if what not in self._told:
                self._told.add(what)
                self.tell({"kind": "without", "what": what, "error": error})
        return {"kind": "scan", "scan": found, "took": took, "opened": opened}

    def _open(self) -> str:
        """Load and initialise; returns why only a new process can: the library was replaced since it was loaded."""
        now = loading.identity(self._driver_root)
        if self._loaded is not None and self._loaded != now:
            return "another libnvidia-ml.so.1 was installed"
        functions = loading.load(self._driver_root, self._provider)
        self._loaded = now
        library = Library(
            functions,
            dev_root=self._dev_root,
            sys_root=self._sys_root,
            touching=self._touching,
            watching=self._watching,
        )
        self.tell({"kind": "opening"})
        begun = time.monotonic()
        library.open()
        self._opening = time.monotonic() - begun
        self.tell({"kind": "opened"})
        self._library = library
        self._watch = Watch(library, self._event)
        self._waiting = threading.Thread(target=self._wait, daemon=True)
        return ""

    def _touching(self, index: int | None) -> None:
        self._touched = index
        self._touches += 1

    def _watching(self) -> None:
        if not self._waiting.is_alive():
            self._waiting.start()

    def _event(self, event: Record) -> None:
        self.tell({"kind": "event", "event": event})

    def _wait(self) -> None:
        """The event watch; a wait is never abandoned, so that no event set is freed under one."""
        try:
            beat = 0.0
            while True:
                now = time.monotonic()
                if now >= beat:
                    self.tell({"kind": "beat", "beats": self._watch.beats})
                    beat = now + BEAT
                pause = self._watch.turn(self._wait_ms)
                if pause:
                    time.sleep(pause)
        except Exception:  # noqa: BLE001 - a watch that dies must not leave the GPUs unwatched in silence
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    def _guard(self) -> None:
        """End with the agent, also while a call hangs; until then, say where a request is that takes long.

        The parent-death signal would not do: it is tied to the thread that spawned us, which is a short-lived one.
        """
        poll = select.poll()
        poll.register(self._connection, 0)  # hang-up is always told
        poll.register(self._begun, select.POLLIN)
        told = 0
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(LONG if self._busy else None)]
            if self._connection.fileno() in ready:
                os._exit(0)
            if ready:
                self._begun.recv(LARGEST)
            elif self._busy and self._touches != told:
                told = self._touches
                self.tell({"kind": "touching", "index": self._touched})


def main() -> None:
    given = json.loads(sys.argv[1])
    Worker(socket.socket(fileno=int(given["fd"])), given).serve()
    os._exit(0)  # the event watch may be in a wait: nothing of NVML is freed under it


if __name__ == "__main__":
    main()
