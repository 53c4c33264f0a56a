"""``python -m reactor.simulate.kubelet ROOT``: a kubelet as a process of its own, telling what it sees.

One JSON object a line on stdout. ``at`` is CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share: of
a list it is the moment at which its bytes were read. Commands come as lines on stdin: ``kill``, ``start``,
``start silent``, ``api`` (the API server answers), ``run NAME RESOURCE COUNT``, ``delete NAME``,
``break RESOURCE rst|goaway|abort``, ``quit``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.socket_kubelet import SocketKubelet
from reactor.simulate.kubelet.socket_link import Break
from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version


def tell(name: str, fields: dict[str, object]) -> None:
    line = {"at": time.monotonic_ns(), "event": name, **fields}
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


async def obey(kubelet: SocketKubelet, words: Sequence[str]) -> bool:
    """Do what a line says; False: it is time to end."""
    match words:
        case ["kill"]:
            await kubelet.kill()
        case ["start"]:
            await kubelet.start()
        case ["start", "silent"]:
            await kubelet.start(api_silent=True)
        case ["api"]:
            await kubelet.api_answers()
        case ["run", name, resource, count]:
            pod = kubelet.api.create(name, {resource: int(count)})
            await kubelet.run_pod(pod)
            held = sorted(kubelet.core.manager.container_devices(pod.uid, "c", resource) or ())
            tell("pod.admitted", {"pod": name, "phase": pod.phase, "message": pod.message, "ids": held})
        case ["break", resource, how] if how in list(Break):
            kubelet.break_stream(resource, Break(how))
        case ["delete", name]:
            kubelet.delete_pod(name, "default")
        case ["quit"]:
            return False
        case _:
            tell("command.unknown", {"words": list(words)})
    return True


async def run(root: Path, traits: Traits) -> None:
    loop = asyncio.get_running_loop()
    kubelet = SocketKubelet(root, traits, tell)
    await kubelet.start()
    lines: asyncio.Queue[str] = asyncio.Queue()
    threading.Thread(target=_listen, args=(loop, lines), daemon=True).start()
    obeying = loop.create_task(_obey_all(kubelet, lines))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, obeying.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await obeying
    await kubelet.stop()


def _listen(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str]) -> None:
    """Runs in a thread, for stdin may be what no event loop can wait for: a file, /dev/null.

    Not through ``sys.stdin``: the interpreter cannot end while a thread has its lock.
    """
    rest = b""
    with contextlib.suppress(RuntimeError):  # the loop has ended
        while data := os.read(0, 4096):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                loop.call_soon_threadsafe(lines.put_nowait, line.decode(errors="replace"))


async def _obey_all(kubelet: SocketKubelet, lines: asyncio.Queue[str]) -> None:
    while await obey(kubelet, (await lines.get()).split()):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m reactor.simulate.kubelet", description=__doc__)
    parser.add_argument("root", type=Path, help="kubelet root; device-plugins/ and pod-resources/ are made below it")
    parser.add_argument("--version", default="1.34", type=Version.parse, help="which kubelet, such as 1.29 or 1.37")
    parser.add_argument("--policy", default=Policy.NONE, type=Policy, choices=list(Policy), help="topology policy")
    parser.add_argument("--numa", default=2, type=int, help="NUMA nodes")
    parser.add_argument("--grace", default=300.0, type=float, help="seconds a stopped resource stays on the node")
    parser.add_argument("--seed", default=0, type=int, help="orders what Go leaves to chance")
    told = parser.parse_args()
    traits = Traits(version=told.version, policy=told.policy, numa=told.numa, grace=told.grace, seed=told.seed)
    asyncio.run(run(told.root, traits))


if __name__ == "__main__":
    main()
