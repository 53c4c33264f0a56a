"""Keeps simulated hardware outside the worker, on a unix socket: a new worker sees the same GPUs.

Runs in a trio task of the agent's process (``serve``), or as a process of its own:
``python -m reactor.simulate.nvml.host 8xH100 SOCKET [ROOT]``, where ROOT gets the files of ``files.lay_out``; it says
``ready`` once it can be asked.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import trio

from reactor.nvml.library import Stuck
from reactor.simulate.nvml import provider
from reactor.simulate.nvml.codes import TIMEOUT, Value
from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware

_LARGEST = 1 << 18
_WAIT = "nvmlEventSetWait_v2"
_ACTIONS = frozenset(
    {"xid", "ecc", "recovery", "event", "lose", "find", "unplug", "plug", "swap", "hang", "fail", "mend", "set_driver"}
)


class Host:
    def __init__(self, hardware: Hardware, path: Path) -> None:
        self.hardware = hardware
        self.path = path
        self._changed = trio.Event()
        self._sessions: dict[str, int] = {}
        self._connections: Counter[str] = Counter()

    @property
    def provider(self) -> str:
        """What a worker is told in order to find this hardware."""
        return provider(str(self.path))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.path.unlink(missing_ok=True)
        off = self.hardware.on_change(self._wake)
        try:
            with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_SEQPACKET) as listener:
                await listener.bind(str(self.path))
                listener.listen(64)
                async with trio.open_nursery() as nursery:
                    task_status.started()
                    while True:
                        connection, _ = await listener.accept()
                        nursery.start_soon(self._serve, connection)
        finally:
            off()
            self.path.unlink(missing_ok=True)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _serve(self, connection: trio.socket.SocketType) -> None:
        name = ""
        try:
            with connection:
                while data := await connection.recv(_LARGEST):
                    kind, *rest = json.loads(data)
                    if kind == "session":
                        name = self._join(str(rest[0]))
                    answer = await self._answer(name, kind, rest)
                    await connection.send(json.dumps(answer).encode())
        except OSError:
            pass  # the worker was killed
        finally:
            self._leave(name)

    def _join(self, name: str) -> str:
        if name not in self._sessions:
            self._sessions[name] = self.hardware.connect()
        self._connections[name] += 1
        return name

    def _leave(self, name: str) -> None:
        """All that a process had goes with its last connection."""
        if name:
            self._connections[name] -= 1
            if not self._connections[name]:
                del self._connections[name]
                self.hardware.disconnect(self._sessions.pop(name))

    async def _answer(self, name: str, kind: str, rest: list[Value]) -> object:
        match kind:
            case "call":
                code, out = await self._call(self._sessions[name], str(rest[0]), rest[1:])
                return [code, *out]
            case "missing":
                return sorted(self.hardware.missing)
            case "do":
                done = self._do(str(rest[0]), rest[1:])
                for _ in range(2):  # who waits for it hears of it before who asked for it, whatever runs first
                    await trio.lowlevel.checkpoint()
                return done
            case _:
                return []

    async def _call(self, session: int, function: str, arguments: list[Value]) -> tuple[int, list[Value]]:
        if function == _WAIT:
            with trio.move_on_after(int(arguments[1]) / 1000):
                while not self.hardware.pending(int(arguments[0])):
                    await self._changed.wait()
        while True:
            try:
                return self.hardware.call(session, function, arguments)
            except Stuck as stuck:
                await self._hang(stuck)
            except KeyError:
                return (TIMEOUT, [])

    async def _hang(self, stuck: Stuck) -> None:
        changed = self._changed
        if stuck.seconds is None:
            await changed.wait()
        else:
            await trio.sleep(stuck.seconds)
            stuck.served()

    def _do(self, method: str, arguments: list[Value]) -> object:
        if method not in _ACTIONS:
            return {"error": f"{method!r} is none of " + ", ".join(sorted(_ACTIONS))}
        action: Callable[..., object] = getattr(self.hardware, method)
        begun = time.monotonic_ns()
        try:
            action(*arguments)
        except (TypeError, ValueError, LookupError) as exc:
            return {"error": f"{method}: {exc}"}
        return {"at": begun}


async def serve(spec: str, path: Path, root: Path | None = None) -> None:
    hardware = Hardware(spec)
    if root is not None:
        lay_out(hardware, root)
    async with trio.open_nursery() as nursery:
        await nursery.start(Host(hardware, path).run)
        sys.stdout.write("ready\n")
        sys.stdout.flush()


def main() -> None:
    spec, path, *root = sys.argv[1:]
    trio.run(serve, spec, Path(path), Path(root[0]) if root else None)


if __name__ == "__main__":
    main()
