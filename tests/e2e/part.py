"""One process of a node or of its control plane: started, stopped, paused, and its log over all its lives."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Sequence

from tests.e2e.logs import PATIENCE, Log
from tests.e2e.settings import Setting
from tests.e2e.world import NotHere, Process, World


class Part:
    """One process of the control plane or of the node, and its log over all its lives."""

    def __init__(self, world: World, name: str, argv: Callable[[], Sequence[str]], path: Callable[[], str]) -> None:
        self.name = name
        self.log = Log(world.folder / "log" / name)
        self.process: Process | None = None
        self.wanted = False
        """Whether a test means it to run."""
        self.begun = 0
        """The place in its log where its present life begins."""
        self._world = world
        self._argv = argv
        self._path = path

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Start it; it may take a while to be of use."""
        assert not self.alive, f"{self.name} runs already"
        self.wanted = True
        self.begun = self.log.mark()
        with self.log.path.open("ab") as log:
            path = self._path()
            program, *rest = self._argv()
            found = which(program, path)
            environment = {"PATH": path, "HOME": str(self._world.folder)}
            self.process = self._world.start([found, *rest], stdout=log.fileno(), environment=environment)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None, f"{self.name} was never started"
        self.process.send(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = PATIENCE) -> int:
        """Signal it and wait for its end: the exit code."""
        self.send(number)
        return await self.ended(within=within)

    async def kill(self) -> int:
        return await self.stop(signal.SIGKILL)

    async def ended(self, *, within: float = PATIENCE) -> int:
        """Wait for an end that is expected: the exit code."""
        self.wanted = False
        assert self.process is not None
        return await self.process.ended(within=within)

    async def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        await self.stop(number)
        self.start()

    def pause(self) -> None:
        """Stop it where it is: its sockets stay open and answer nothing."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)


class Kubelet(Part):
    """A part whose config file is written anew at each start."""

    def __init__(
        self,
        world: World,
        argv: Callable[[], Sequence[str]],
        path: Callable[[], str],
        configure: Callable[[dict[str, Setting]], None],
    ) -> None:
        super().__init__(world, "kubelet", argv, path)
        self.settings: dict[str, Setting] = {}
        """Fields of its config that are not as usual; read at its next start."""
        self._configure = configure

    def start(self) -> None:
        self._configure(self.settings)
        super().start()

    async def restart(self, number: signal.Signals = signal.SIGTERM, **own: Setting) -> None:
        """Stop and start it, with these fields of its config set from now on."""
        self.settings |= own
        await self.stop(number)
        self.start()


def which(program: str, path: str) -> str:
    found = shutil.which(program, path=path)
    if found is None:
        raise NotHere(f"{program} is neither built nor installed")
    return found
