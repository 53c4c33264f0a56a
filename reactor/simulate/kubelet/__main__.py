"""``python -m reactor.simulate.kubelet ROOT``: a kubelet as a process of its own, telling what it sees.

One JSON object a line on stdout. ``at`` is CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share: of
a list it is the moment at which its bytes were read. Commands come as lines on stdin: ``kill``, ``start``,
``start silent``, ``api`` (the API server answers), ``run NAME RESOURCE COUNT``, ``delete NAME``, ``quit``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.socket_kubelet import SocketKubelet
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
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    obeying = loop.create_task(_obey_all(kubelet, lines))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, obeying.cancel)
    await asyncio.gather(obeying, return_exceptions=True)
    await kubelet.stop()
    if not obeying.cancelled() and (error := obeying.exception()) is not None:
        raise error


async def _obey_all(kubelet: SocketKubelet, lines: asyncio.StreamReader) -> None:
    while line := await lines.readline():
        if not await obey(kubelet, line.decode().split()):
            return
    await asyncio.Event().wait()  # nobody gives orders: run until a signal


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
