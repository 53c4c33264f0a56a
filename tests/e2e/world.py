"""A private world for one node: pid, mount, network, uts and cgroup namespaces, a folder, cgroups; and its processes.

The world lives as long as the tests' process holds the socket of its init (``init.py``): when that closes, be it by a
kill -9, the kernel ends every process in it, and with them the mounts. What the kernel cannot sweep, cgroup folders and
the node's files, carries the owner's pid and start time in its name and is swept at the next start.

Nothing here belongs to an event loop: a world may be opened by one test and used by the next.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, TypeVar

import trio

from tests.e2e import cgroups

T = TypeVar("T")

ADDRESS, HOSTNAME = "10.77.0.1", "n1"
HOME = Path("/tmp/gpu-reactor-e2e")
"""Folders of nodes: short, since unix sockets lie in them."""
_CLONE_NEWNET = 0x40000000
_numbers = count(1)
_libc = ctypes.CDLL(None, use_errno=True)


class NotHere(Exception):
    """In one sentence, what this machine lacks for a node."""


def need() -> None:
    """Raise NotHere unless nodes can be started here."""
    if os.geteuid() != 0:
        raise NotHere("a real node needs namespaces, mounts and cgroups: run this as root")
    missing = [tool for tool in ("unshare", "ip", "mount") if shutil.which(tool) is None]
    if missing:
        raise NotHere(f"{', '.join(missing)} missing: apt-get install util-linux iproute2")
    if away := cgroups.missing():
        raise NotHere(f"a real node needs cgroup controllers below {cgroups.ROOT}; missing: {', '.join(away)}")


def _born(pid: int) -> str:
    """A process's start, by which a pid that is used again is told apart; empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _inner(pid: int) -> int:
    """The pid of a process as the innermost pid namespace that it is in knows it."""
    return int(Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1])


def sweep() -> None:
    """Remove what worlds of dead owners left behind: folders and cgroups."""
    HOME.mkdir(exist_ok=True)
    for folder in HOME.iterdir():
        owner, _, born = folder.name.partition("-")[0].partition("_")
        if owner.isdigit() and _born(int(owner)) != born:
            shutil.rmtree(folder, ignore_errors=True)
    for name in set(cgroups.worlds()):
        owner, _, born = name.removeprefix(cgroups.PREFIX).partition("-")[0].partition("_")
        if _born(int(owner)) != born:
            cgroups.remove(name)


class Process:
    """A process in a world: signals and its end go by pidfd, so that they never meet another process."""

    def __init__(self, world: World, inner: int, handle: int) -> None:
        self.inner = inner
        """Its pid as the node sees it."""
        self._world = world
        self._handle = handle
        found = Path(f"/proc/self/fdinfo/{handle}").read_text().split("Pid:")[1].split()[0]
        self.pid = int(found)
        """Its pid on the machine."""

    @property
    def alive(self) -> bool:
        return not select.select([self._handle], [], [], 0)[0]

    def send(self, number: signal.Signals) -> None:
        """Signal it; a process that has ended meanwhile takes no notice."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    async def ended(self, *, within: float = 20) -> int:
        """Wait for its end: the exit code, negative for a signal."""
        with trio.fail_after(within):
            await trio.lowlevel.wait_readable(self._handle)
        return self.code()

    def code(self) -> int:
        """The exit code of a process that has ended."""
        answer, _ = self._world.ask({"pid": self.inner})
        code = answer["code"]
        assert isinstance(code, int), f"process {self.inner} has not ended"
        return code

    def __del__(self) -> None:
        os.close(self._handle)


class World:
    """Opened by its constructor; ``close`` ends everything in it."""

    def __init__(self) -> None:
        need()
        sweep()
        owner = f"{os.getpid()}_{_born(os.getpid())}"
        number = next(_numbers)
        self.folder = HOME / f"{owner}-{number}"
        self.folder.mkdir()
        self.cgroup = f"{cgroups.PREFIX}{owner}-{number}"
        self._alone = threading.Lock()
        cgroups.make(self.cgroup)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, (self.folder / "init.log").open("wb") as log:
            self._unshare = self._open(theirs, log)
        self._control.settimeout(30)
        if not self._control.recv(16):
            raise NotHere("no node can be made here: " + (self.folder / "init.log").read_text()[-300:])
        cgroups.settle(self.cgroup, self._unshare.pid)
        self._network = os.open(f"/proc/{self._init_pid()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def _open(self, theirs: socket.socket, log: IO[bytes]) -> subprocess.Popen[bytes]:
        enter = 'for each in $CGROUPS; do echo 0 > "$each/cgroup.procs"; done; exec "$@"'
        spaces = ("--mount", "--pid", "--net", "--uts", "--cgroup", "--fork", "--kill-child")
        init = (sys.executable, "-I", str(Path(__file__).with_name("init.py")), str(theirs.fileno()))
        return subprocess.Popen(
            ["sh", "-c", enter, "sh", "unshare", *spaces, *init, str(self.folder), ADDRESS, HOSTNAME],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "CGROUPS": " ".join(map(str, cgroups.folders(self.cgroup)))},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a ^C in the terminal is for pytest
        )

    def _init_pid(self) -> int:
        pid = self._unshare.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def ask(
        self, request: Mapping[str, object], descriptors: Sequence[int] = ()
    ) -> tuple[dict[str, object], list[int]]:
        with self._alone:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(descriptors))
            data, passed, _, _ = socket.recv_fds(self._control, 1 << 16, 4, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise RuntimeError("the node's init is gone")
        answer: dict[str, object] = json.loads(data)
        if "error" in answer:
            raise OSError(f"{request.get('argv')}: {answer['error']}")
        return answer, passed

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: int,
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        groups: Sequence[Path] = (),
    ) -> Process:
        """Start a process in the world. ``groups``: cgroups, as the node sees them, that it begins in."""
        request = {
            "argv": list(argv),
            "env": dict(os.environ if environment is None else environment),
            "cwd": str(cwd or self.folder),
            "groups": [str(each) for each in groups],
        }
        with open(os.devnull, "rb") as nothing:
            answer, passed = self.ask(request, [nothing.fileno(), stdout, stdout if stderr is None else stderr])
        return Process(self, int(str(answer["pid"])), passed[0])

    def inside(self, make: Callable[[], T]) -> T:
        """Call this in the node's network: a socket that it makes stays there. Short; blocks this thread."""
        made: list[T] = []
        failed: list[BaseException] = []

        def enter() -> None:
            try:
                if _libc.setns(self._network, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "cannot enter the node's network")
                made.append(make())
            except OSError as exc:
                failed.append(exc)

        thread = threading.Thread(target=enter)  # its own: a thread in another network must not go back to a pool
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return made[0]

    async def end_others(self, staying: Collection[int]) -> None:
        """Kill every process but init and these (pids as the node sees them), and wait until they are gone."""
        handles = self._kill_others({1, *staying})
        with trio.fail_after(20):
            for handle in handles:
                await trio.lowlevel.wait_readable(handle)
                os.close(handle)

    def _kill_others(self, staying: Collection[int]) -> list[int]:
        handles = []
        for pid in cgroups.processes(self.cgroup):
            with suppress(OSError):  # it ended meanwhile
                if _inner(pid) not in staying and pid != self._unshare.pid:
                    handles.append(os.pidfd_open(pid))
                    signal.pidfd_send_signal(handles[-1], signal.SIGKILL)
        return handles

    def path(self, inner: str) -> Path:
        """A file of the node as seen from outside, below one of the places that each node has for itself."""
        return self.folder / "root" / inner.lstrip("/")

    def cgroup_folder(self, controller: str, inner: str = "") -> Path:
        """A cgroup of the node as seen from outside."""
        return cgroups.folder(self.cgroup, controller, inner)

    def close(self, *, keep: bool = False) -> None:
        """End everything; idempotent. ``keep``: leave the files."""
        self._control.close()
        cgroups.thaw(self.cgroup)
        self._unshare.wait(30)
        with suppress(OSError):
            os.close(self._network)
        cgroups.remove(self.cgroup)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
