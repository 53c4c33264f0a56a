"""``gpu-reactor simulate`` as a process of its own, and what it leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


class Run:
    """Begins at once. ``script`` None: the built-in story."""

    def __init__(self, script: str | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="story-", dir="/tmp"))
        """All that the process may write to; its name is in the command line or environment of all its processes."""
        words = []
        if script is not None:
            words = [str(self.directory / "script")]
            Path(words[0]).write_text(script)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reactor", "simulate", "--color", "never", *words],
            env={**os.environ, "TMPDIR": str(self.directory)},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self.told = ""
        self.errors = ""
        self.code: int | None = None

    def until(self, text: str) -> None:
        """Read on until a line has this text."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told += line
            if text in line:
                return
        raise AssertionError(f"it never told {text!r}:\n{self.told}")

    def signal(self, number: signal.Signals) -> None:
        """To the whole process group, as a terminal does."""
        os.killpg(self._process.pid, number)

    def hang_up(self) -> None:
        """Nobody reads any more."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def finish(self, within: float) -> None:
        out = self._process.stdout
        if out is not None and not out.closed:
            rest, _ = self._process.communicate(timeout=within)
            self.told += rest
        self.code = self._process.wait(within)
        self._errors.seek(0)
        self.errors = self._errors.read()
        print(self.errors)  # whole, where a test fails by them

    def left_behind(self) -> list[str]:
        """Files, and processes, of this run that are still there."""
        files = [str(path) for path in self.directory.rglob("*") if path.name != "script"]
        return files + [f"process {pid}" for pid in self._processes()]

    def _processes(self) -> list[str]:
        name = str(self.directory).encode()
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and int(process.name) != os.getpid():
                try:
                    known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                except OSError:
                    continue
                if name in known:
                    found.append(process.name)
        return found

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)
