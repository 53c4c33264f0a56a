"""One worker process, seen from the agent: how it is started, asked, listened to and ended."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import msgspec
import trio
from msgspec import Struct

from reactor.nvml.wire import Message, RawEvent

log = logging.getLogger(__name__)

_LARGEST = 1 << 18
_BOOT = "import sys; sys.path += sys.argv[2:]; from reactor.nvml.worker import main; main()"


class Hung(Exception):
    """A call did not return in time; ``index`` is the GPU it was about, if it was about one."""

    def __init__(self, error: str, index: int | None) -> None:
        super().__init__(error)
        self.index = index


class Died(Exception):
    """The worker ended."""


class Setup(Struct, frozen=True, kw_only=True):
    """How workers are started."""

    provider: str
    driver_root: Path
    dev_root: Path
    sys_root: Path
    scan_deadline: float
    init_deadline: float
    wait: float
    silence: float
    """Seconds without a sign of life of the event watch that are too long."""

    def command(self, descriptor: int) -> list[str]:
        given = {
            "fd": descriptor,
            "provider": self.provider,
            "driver_root": str(self.driver_root),
            "dev_root": str(self.dev_root),
            "sys_root": str(self.sys_root),
            "wait_ms": int(self.wait * 1000),
        }
        # No site module, no environment: the two places it imports from are given, nothing else is looked at.
        return [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, json.dumps(given), *import_paths()]


def import_paths() -> list[str]:
    """Where a worker finds this package and pynvml."""
    found = [str(Path(__file__).parents[2])]
    spec = find_spec("pynvml")
    if spec is not None and spec.origin is not None:
        found.append(str(Path(spec.origin).parent))
    return found


class Link:
    """A running worker. ``listen`` runs for its whole life; one question at a time is asked beside it."""

    def __init__(self, setup: Setup, process: trio.Process, connection: trio.socket.SocketType) -> None:
        self.process = process
        self.leaving = False
        """Somebody ends it."""
        self.left = trio.Event()
        """It is known whether it could be ended."""
        self.watching = trio.Event()
        """It waits for events, or has ended."""
        self.vacated = trio.Event()
        """Its place is free: it ended, or it only watches until its successor does."""
        self.retired = False
        self.error = ""
        """How it went wrong; empty while it did not."""
        self.beats = 0
        self._setup = setup
        self._connection = connection
        self._decode = msgspec.json.Decoder(Message).decode
        self._moved = trio.Event()
        self._answer: Message | None = None
        self._beating = False
        self._greeted = False
        self._opening = False
        self._gone = False
        self._touched: int | None = None

    @classmethod
    async def start(cls, setup: Setup) -> Link:
        """Spawn a worker; it inherits its end of a socket pair and nothing else. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ExitStack() as undo:
            undo.enter_context(ours)
            descriptor = theirs.fileno()
            process = await trio.lowlevel.open_process(
                setup.command(descriptor), pass_fds=(descriptor,), start_new_session=True
            )
            undo.pop_all()
        return cls(setup, process, trio.socket.from_stdlib_socket(ours))

    @property
    def watches(self) -> bool:
        """It waits for events."""
        return self._beating

    async def listen(self, hello: Callable[[int], None], event: Callable[[RawEvent], None]) -> None:
        """Take what the worker says, until it ends or is closed.

        Raises Hung if its event watch falls silent, Died if what it says makes no sense.
        """
        room = memoryview(bytearray(_LARGEST))
        try:
            while size := await self._receive(room):
                message = self._decode(room[:size])
                match message.kind:
                    case "event":
                        if message.event is not None:
                            event(message.event)
                    case "beat":
                        self._beating = True
                        self.watching.set()
                        self.beats = message.beats
                    case "hello":
                        hello(message.pid)
                        self._greeted = True
                        self._moved_on()
                    case "without":
                        log.info("nvml.limited what=%s error=%s", message.what, message.error)
                    case _:
                        self._progress(message)
        except (OSError, trio.ClosedResourceError):
            pass  # it was ended while it spoke
        except msgspec.MsgspecError as exc:
            raise Died(f"NVML worker {self.process.pid} is not understood: {exc}") from exc
        finally:
            self._gone = True
            self._moved.set()
            self.watching.set()

    async def _receive(self, room: memoryview) -> int:
        if not self._beating:
            return await self._connection.recv_into(room)
        with trio.move_on_after(self._setup.silence):
            return await self._connection.recv_into(room)
        raise Hung(f"the event watch gave no sign of life for {self._setup.silence:g} s", None)

    def _progress(self, message: Message) -> None:
        match message.kind:
            case "opening":
                self._opening = True
            case "opened":
                self._opening = False
            case "touching":
                self._touched = message.index
            case _:
                self._answer = message
        self._moved_on()

    def _moved_on(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    async def ask(self, skip: Collection[int]) -> Message:
        """Have it scan; raises Hung if it makes no progress for the deadline, Died if it ends."""
        self._forget()
        try:
            await self._connection.send(json.dumps({"skip": sorted(skip)}).encode())
        except (OSError, trio.ClosedResourceError) as exc:
            raise Died(f"NVML worker {self.process.pid} is gone") from exc
        while self._answer is None:
            if self._gone:
                raise Died(f"NVML worker {self.process.pid} ended during a scan")
            slow = self._opening or not self._greeted
            deadline = self._setup.init_deadline if slow else self._setup.scan_deadline
            with trio.move_on_after(deadline) as patience:
                await self._moved.wait()
            if patience.cancelled_caught:
                raise Hung(f"no answer within {deadline:g} s", self._touched)
        return self._answer

    async def epitaph(self, grace: float) -> str:
        """How a worker ended that went by itself."""
        with trio.move_on_after(grace):
            await self.process.wait()
        status = self.process.returncode
        how = "closed its connection" if status is None else f"ended with status {status}"
        return f"NVML worker {self.process.pid} {how}"

    def _forget(self) -> None:
        self._answer, self._touched, self._opening = None, None, False

    async def end(self, kill: Callable[[trio.Process], None], grace: float) -> bool:
        """Kill it; False if it is still there after ``grace`` seconds, stuck in the kernel."""
        kill(self.process)
        self._connection.close()
        with trio.move_on_after(grace, shield=True):
            await self.process.wait()
        return self.process.returncode is not None
