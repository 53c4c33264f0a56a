"""What is measured, as processes of their own: the agent beside its simulated hardware, and the floor."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Self

from reactor.cli.client import NoAgent, ask
from reactor.simulate.nvml.remote import Control
from tests.bench.floor import GPUS
from tests.bench.kubelet import Kubelet

REPOSITORY = Path(__file__).parents[2]
# Images ship compiled modules, so measured processes may keep them, whatever is set for this one.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

_MAILBOX = "gpu_reactor_handler_mailbox_depth{"


class Plugin:
    """A device plugin as a process, with a kubelet of its own."""

    command: list[str]

    def __init__(self, root: Path, *, gpus: int = GPUS, blocking: bool = False) -> None:
        """``blocking``: its main thread can be blocked."""
        root.mkdir()
        self.gpus = gpus
        self.root = root
        self.blocking = blocking
        self.kubelet = Kubelet(root / "kubelet")
        self.started_ns = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._undo.close()

    def start(self) -> None:
        """Start it under a kubelet that is already there; ``started_ns`` is the moment."""
        self.kubelet.start()
        self._undo.callback(self.kubelet.stop)
        out = self._undo.enter_context((self.root / "out").open("wb"))
        self.started_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE if self.blocking else None,
            env=ENVIRONMENT,
            cwd=REPOSITORY,
        )
        self._undo.callback(self._end)

    def pids(self) -> list[int]:
        """Its process and the children of that."""
        first = self._running.pid
        found = [first]
        for children in Path(f"/proc/{first}/task").glob("*/children"):
            found.extend(map(int, children.read_text().split()))
        return found

    def block(self) -> None:
        """Block its main thread; returns once it is blocked."""
        self._running.send_signal(signal.SIGUSR1)
        self._hear(b"blocked")

    def await_release(self) -> None:
        self._hear(b"released")

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.root / "out").read_bytes().splitlines()]

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _hear(self, word: bytes) -> None:
        heard = _pipe(self._running.stderr).readline().strip()
        if heard != word:
            raise RuntimeError(f"{word!r} was expected on stderr, not {heard!r}")

    def _end(self) -> None:
        self._running.terminate()
        self._running.communicate(timeout=20)


class Agent(Plugin):
    def __init__(
        self,
        root: Path,
        *,
        config: str = "version: v1\n",
        gpus: int = GPUS,
        blocking: bool = False,
        metrics: bool = False,
    ) -> None:
        super().__init__(root, gpus=gpus, blocking=blocking)
        self._hardware = root / "nvml"
        self._hardware.mkdir()
        self._config = root / "config"
        self._config.mkdir()
        self._edits = 0
        self.swap(config)
        (self._config / "config.yaml").symlink_to("..data/config.yaml")
        nvml = str(self._hardware / "nvml.sock")
        host = subprocess.Popen(
            [sys.executable, "-m", "reactor.simulate.nvml.host", f"{gpus}xH100", nvml, self._hardware],
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd=REPOSITORY,
        )
        self._undo.callback(host.communicate)
        self._undo.callback(host.terminate)
        if _pipe(host.stdout).readline() != b"ready\n":
            raise RuntimeError("the simulated hardware did not start")
        self.hardware = Control(nvml)
        self._undo.callback(self.hardware.close)
        run = [sys.executable, "-m", "tests.bench.block"] if blocking else [f"{sys.prefix}/bin/gpu-reactor"]
        self.command = [
            *(*run, "run", "--allow-inject", "--probe-listen", "", "--node-name", "bench"),
            *("--config", str(self._config / "config.yaml"), "--simulate-nvml", nvml),
            *("--kubelet-root", str(root / "kubelet"), "--state-dir", str(root / "state")),
            *("--admin-socket", self.admin_socket),
        ]
        self._port = _free_port() if metrics else 0
        if metrics:
            self.command += ["--metrics-listen", f"127.0.0.1:{self._port}"]

    @property
    def admin_socket(self) -> str:
        return str(self.root / "agent.sock")

    def swap(self, config: str) -> int:
        """Put another config in place as the kubelet does with a ConfigMap; the moment (ns) of the swap."""
        self._edits += 1
        fresh = self._config / f"..{self._edits}"
        fresh.mkdir()
        (fresh / "config.yaml").write_text(config)
        (self._config / "..data_tmp").symlink_to(fresh.name)
        begun = time.monotonic_ns()
        (self._config / "..data_tmp").rename(self._config / "..data")
        return begun

    def clear(self, gpu: int | str) -> None:
        """A person says that the GPU is mended."""
        words = json.dumps(["clear", f"gpu={gpu}", "reason=bench"]).encode()
        self.ask("POST", "/debug/inject", words)

    def ask(self, method: str, target: str, body: bytes = b"") -> bytes:
        """An answer of its admin socket."""
        status, answer = ask(self.admin_socket, method, target, body)
        if status != 200:
            raise RuntimeError(answer.decode())
        return answer

    def await_admin(self, deadline: float = 20.0) -> None:
        """It loads and opens its admin socket after the first list."""
        end = time.monotonic() + deadline
        while True:
            try:
                self.ask("GET", "/debug/state")
            except NoAgent:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                return

    def hang_up(self) -> None:
        """SIGHUP: it reads its config and looks at its GPUs again."""
        self._running.send_signal(signal.SIGHUP)

    def waiting(self) -> int:
        """Events that wait for handlers, as its metrics say."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(_MAILBOX))


class Floor(Plugin):
    def __init__(self, root: Path, *, gpus: int = GPUS, blocking: bool = False) -> None:
        super().__init__(root, gpus=gpus, blocking=blocking)
        self.command = [sys.executable, "-m", "tests.bench.floor", str(self.kubelet.directory), str(gpus)]

    def tell(self, word: str) -> int:
        """``list`` or ``again``; the moment (ns) it was told."""
        pipe = _pipe(self._running.stdin)
        begun = time.monotonic_ns()
        pipe.write(f"{word}\n".encode())
        pipe.flush()
        return begun


def process(*command: str) -> float:
    """How long a command takes from its start to its end, in ms."""
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT, cwd=REPOSITORY, check=True)
    return (time.perf_counter() - begun) * 1000


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def memory(pids: list[int]) -> dict[str, float]:
    """Rss and Pss of these processes together, in MB (a million bytes)."""
    total = {"Rss": 0.0, "Pss": 0.0}
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in total:
                total[name] += int(rest.split()[0]) * 1024 / 1e6
    return total


def cpu(pids: list[int]) -> float:
    """CPU time of these processes so far, in ms, threads that have ended included."""
    # The clock id that clock_getcpuclockid(3) gives for another process.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids) * 1000
