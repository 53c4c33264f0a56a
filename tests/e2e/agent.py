"""The agent of this checkout as a process in a node, and the simulated GPUs that outlive it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import trio

from reactor.cli.client import NoAgent, ask
from reactor.simulate.nvml.codes import Value
from reactor.simulate.nvml.remote import Control
from reactor.status.document import Document
from tests.e2e.logs import PATIENCE, AgentLog, Log
from tests.e2e.world import HOSTNAME, Process, World
from tests.process.agent import OURS
from tests.process.story import Line

ROOT = Path(__file__).parents[2]


async def answer(socket: Path, method: str, target: str, body: bytes = b"", *, within: float = PATIENCE) -> bytes:
    """What an agent answers at its admin socket, which it serves a moment after the kubelet has its first list."""
    with trio.fail_after(within):
        while True:
            with suppress(NoAgent):
                status, found = await trio.to_thread.run_sync(ask, str(socket), method, target, body)
                assert status == 200, found
                return found
            await trio.sleep(0.05)  # a socket that nobody serves yet tells nothing


class Gpus:
    """Simulated hardware in a process of its own: ``await gpus("xid", 0, 79)`` calls a method of ``Hardware``."""

    def __init__(self, world: World, spec: str, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.socket = self.folder / "nvml.sock"
        self.log = Log(self.folder / "log")
        with self.log.path.open("ab") as log:
            self.process = world.start(
                [sys.executable, "-m", "reactor.simulate.nvml.host", spec, str(self.socket), str(self.folder)],
                stdout=log.fileno(),
                cwd=ROOT,
            )

    async def ready(self) -> None:
        await self.log.until("^ready$")

    async def __call__(self, method: str, *arguments: Value | None) -> int:
        """Tell it what happens: when that was (monotonic ns)."""

        def tell() -> int:
            control = Control(str(self.socket))
            try:
                return control.do(method, *arguments)
            finally:
                control.close()

        return await trio.to_thread.run_sync(tell)

    async def end(self) -> None:
        self.process.send(signal.SIGKILL)
        await self.process.ended()


class Agent:
    """Started by ``Node.start_agent``. Its folder keeps config, state, journal and log over its restarts."""

    def __init__(self, world: World, gpus: Gpus, folder: Path, flags: Sequence[str], config: str) -> None:
        self.gpus = gpus
        self.folder = folder
        self.flags = list(flags)
        """Read at its next start; they come last, so that they win."""
        self.config = folder / "config" / "config.yaml"
        self.config.parent.mkdir(parents=True)
        self.state_dir = folder / "state"
        self.admin = folder / "agent.sock"
        self.log = AgentLog(folder / "log")
        self.complaints = Log(folder / "stderr")
        """What it wrote to stderr: nothing, if all is well."""
        self.process: Process | None = None
        self._world = world
        self.write_config(config)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self, *wrap: str, groups: Sequence[Path] = ()) -> None:
        """``wrap``: a command in front of it; ``groups``: cgroups that it begins in, as the node sees them."""
        settings = {
            "config": self.config,
            "simulate-nvml": self.gpus.socket,
            "state-dir": self.state_dir,
            "admin-socket": self.admin,
            "journal": self.folder / "journal",
            "node-name": HOSTNAME,
        }
        given = [f"--{name}={value}" for name, value in settings.items()]
        with self.log.path.open("ab") as out, self.complaints.path.open("ab") as complaints:
            self.process = self._world.start(
                [*wrap, sys.executable, "-m", "reactor", "run", *given, "--allow-inject", *self.flags],
                stdout=out.fileno(),
                stderr=complaints.fileno(),
                environment={name: value for name, value in os.environ.items() if name not in OURS},
                cwd=ROOT,
                groups=groups,
            )

    def write_config(self, text: str) -> None:
        """Replace the config file in one step, as editors do."""
        new = self.config.with_name("new")
        new.write_text(text)
        new.rename(self.config)

    async def event(self, event: str, *, since: int = 0, within: float = PATIENCE, **fields: object) -> Line:
        """The first line of its log with this event and these fields; waits for it."""
        return await self.log.event(event, since=since, within=within, **fields)

    async def state(self) -> Document:
        """The document of ``status``."""
        document: Document = json.loads(await answer(self.admin, "GET", "/debug/state"))
        return document

    async def inject(self, *words: str) -> None:
        """As the command does: ``inject("clear", "gpu=3", "reason=mended")``."""
        await answer(self.admin, "POST", "/debug/inject", json.dumps(words).encode())

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = PATIENCE) -> int:
        """Signal it and wait for its end: the exit code."""
        self.send(number)
        assert self.process is not None
        return await self.process.ended(within=within)

    async def kill(self) -> int:
        return await self.stop(signal.SIGKILL)

    async def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        await self.stop(number)
        self.start()

    async def away(self) -> None:
        """End it if it runs. What it complained of, or a line that its schema does not know, fails the test."""
        if self.alive:
            self.send(signal.SIGCONT)
            code = await self.stop()
            begun = self.log.text() != ""  # before that, TERM finds a Python that is still loading
            assert code == 0 or not begun, f"the agent ended with {code}: {self.complaints.text()}"
        assert self.complaints.text() == "", self.complaints.text()
        self.log.lines()
