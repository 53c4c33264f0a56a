"""Runs the real-node tests in four lanes side by side: a node mostly waits, so that four fit on two cores.

    python -m tests.e2e [ARGUMENTS OF PYTEST]        # make e2e; the worst exit code of all

The tables of probes are a lane, each whole node's version is, and the rest: kubelet 1.29, and what starts nodes of its
own or none. Each line says which it is of.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import trio

LANES: dict[str, tuple[str, ...]] = {"tables": (), "1.34": ("1.34",), "1.37": ("1.37",), "rest": ()}
"""Name -> the parameters that put a test there; the last takes what is left, and the first what is of contract/."""
QUIET = 1200
"""Seconds after which a test that goes on is shown by its stacks: the longest is a whole table of probes."""
NO_TESTS = 5
"""Pytest's code for a lane in which nothing was selected."""


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no run, and no node, outlives us


def start(lane: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    """To be called in the main thread: the kernel takes the end of a child's starting thread for that of its parent."""
    options = ["-vv", "--lane", lane, "--durations=10", "-o", f"faulthandler_timeout={QUIET}"]
    command = [sys.executable, "-m", "pytest", "tests/e2e", *options, *arguments]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - there is no other thread yet
    )


async def show(lane: str, process: subprocess.Popen[bytes]) -> None:
    """Show what a lane writes, line by line, until its end."""
    begun = time.monotonic()
    assert process.stdout is not None
    rest = b""
    async with trio.lowlevel.FdStream(os.dup(process.stdout.fileno())) as stream:
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                print(f"{lane} | {line.decode(errors='replace')}", flush=True)
    code = await trio.to_thread.run_sync(process.wait)
    print(f"{lane} | ended with {code} after {time.monotonic() - begun:.0f} s", flush=True)


async def main() -> int:
    processes = {lane: start(lane, sys.argv[1:]) for lane in LANES}
    async with trio.open_nursery() as nursery:
        for lane, process in processes.items():
            nursery.start_soon(show, lane, process)
    codes = [abs(process.returncode) for process in processes.values() if process.returncode != NO_TESTS]
    return max(codes, default=NO_TESTS)


if __name__ == "__main__":
    sys.exit(trio.run(main))
