"""The real ``gpu-reactor run``, as the node's init would see it: a process, its log, its sockets, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from reactor.cli.client import NoAgent, ask
from reactor.status.document import Document
from tests.loglines import validate
from tests.process.story import PATIENCE, Line, Story

OURS = ("CONFIG_FILE", "KUBELET_SOCKET", "NODE_NAME", "LD_LIBRARY_PATH")
"""Variables that would lead an agent astray which a test starts."""


@dataclass(frozen=True)
class End:
    code: int
    seconds: float
    """From the signal to the end."""


class Agent:
    """A running agent. Its log is read all the time, unless it was started with a log of its own (``log``)."""

    def __init__(self, process: trio.Process, admin: Path, complaints: Path) -> None:
        self.process = process
        self.admin = admin
        self.log = Story()
        self._complaints = complaints
        self._read = trio.Event()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def complaints(self) -> str:
        """What it wrote to stderr: nothing, if all is well."""
        return self._complaints.read_text()

    def take_complaints(self) -> str:
        """The same, where it was to be expected."""
        text = self.complaints
        self._complaints.write_text("")
        return text

    async def follow(self) -> None:
        """Read the log to its end. A line that the schema does not know fails the test."""
        assert self.process.stdout is not None
        rest = b""
        async for data in self.process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.log.add(validate(line + b"\n"))
        assert rest == b"", "the log ends with a whole line"
        self._read.set()

    async def settled(self, after: int = 0) -> None:
        await self.log.until("agent.settled", after=after)

    async def state(self) -> Document:
        """The document of ``/debug/state``. The admin socket comes after the first list, or half a second late."""
        return await self.shows()

    async def _state(self) -> Document:
        status, body = await trio.to_thread.run_sync(ask, str(self.admin), "GET", "/debug/state")
        assert status == 200, body
        document: Document = json.loads(body)
        return document

    async def shows(self, holds: Callable[[Document], bool] = lambda state: True) -> Document:
        """The document, once it is there and this holds. What has a log line is better waited for in the log."""
        try:
            with trio.fail_after(PATIENCE):
                while True:
                    with suppress(NoAgent):
                        if holds(state := await self._state()):
                            return state
                    await trio.sleep(0.02)
        except trio.TooSlowError:
            raise AssertionError(f"never so in the state, after:\n{self.log}") from None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGTERM, *, within: float = PATIENCE) -> End:
        """Signal it and wait for its end and for the end of its log."""
        begun = trio.current_time()
        self.send(number)
        return await self.ended(within=within, begun=begun)

    async def ended(self, *, within: float = PATIENCE, begun: float | None = None) -> End:
        since = trio.current_time() if begun is None else begun
        try:
            with trio.fail_after(within):
                code = await self.process.wait()
        except trio.TooSlowError:
            raise AssertionError(f"still there after {within} s:\n{self.log}") from None
        seconds = trio.current_time() - since
        if self.process.stdout is not None:
            with trio.fail_after(PATIENCE):
                await self._read.wait()
        return End(code, seconds)

    def children(self) -> list[Child]:
        tasks = Path(f"/proc/{self.pid}/task")
        return [Child(int(pid)) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]

    def descriptors(self) -> list[str]:
        """What each open descriptor leads to, numbers of sockets and pipes left out."""
        found = []
        for each in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                found.append(os.readlink(each).split("[")[0])
            except FileNotFoundError:
                continue  # closed since
        return sorted(found)

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))


class Child:
    """A process that is not ours to wait for, but whose end can be waited for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    async def gone(self, within: float = PATIENCE) -> None:
        with trio.fail_after(within):
            await trio.lowlevel.wait_readable(self._handle)
        os.close(self._handle)


async def start_agent(
    flags: Sequence[str],
    *,
    admin: Path,
    complaints: Path,
    environment: Mapping[str, str],
    log: int = subprocess.PIPE,
    wrap: Sequence[str] = (),
) -> Agent:
    base = {name: value for name, value in os.environ.items() if name not in OURS}
    with complaints.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            [*wrap, sys.executable, "-m", "reactor", "run", *flags],
            stdout=log,
            stderr=stderr,
            env={**base, **environment},
        )
    return Agent(process, admin, complaints)


def lines_of(data: bytes) -> list[Line]:
    return [validate(line + b"\n") for line in data.split(b"\n") if line]
