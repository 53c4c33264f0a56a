"""``make bench-node``: what the agent takes on a real node, as a DaemonSet, beside a careless plugin on that node.

    python -m tests.e2e.bench [--rounds N] [--version 1.34 | 1.37] [--json FILE]

The floor is ``peer.py``: a grpcio plugin of as many ids under another resource name, that looks at nothing. It runs as
a process of the node, in a cgroup of its own, and is started again by us the moment it has ended; the agent runs in its
container, which the kubelet starts again. Moments in the kubelet are those of its own log.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio

from reactor.simulate.nvml.hardware import Hardware
from tests.bench.table import Row, render
from tests.e2e import cgroups
from tests.e2e.agent import ROOT
from tests.e2e.bundle import keep
from tests.e2e.daemonset import AgentPod, DaemonSet, deploy
from tests.e2e.image import NotBuilt
from tests.e2e.logs import Log
from tests.e2e.node import GPU, PLUGINS, Node, need_all
from tests.e2e.versions import WHOLE
from tests.e2e.world import NotHere, Process

FLOOR = "example.com/floor"
GPUS = 8
FATAL, HARMLESS = 79, (13, 31, 45)
IDLE = 30.0
MANY, STORM = 60_000, 2_000
WITHIN = 180.0
PLAIN = "version: v1\nflags: {failOnInitError: false}\n"
SEVEN = PLAIN + "select: {exclude: {indices: [7]}}\n"
SHARED = PLAIN + f"sharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: {MANY // GPUS}}}]}}}}\n"


class Rows:
    def __init__(self) -> None:
        self.pod = Row(name="pod created -> container running with its GPU", unit="ms")
        self.kubelet = Row(name="XID -> kubelet", unit="ms", below=100)
        self.node = Row(name="XID -> Node object", unit="ms", below=3000)
        self.back = Row(name="kubelet accepting -> list", unit="ms", below=1000)
        self.gap = Row(name="kill -9 -> kubelet has a list again", unit="ms", below=5000)
        self.seen = Row(name="ConfigMap edited -> seen in the container", unit="ms")
        self.applied = Row(name="ConfigMap seen in the container -> kubelet", unit="ms", below=1000)
        self.cpu = Row(name=f"{IDLE:.0f} s idle: CPU of the cgroup", unit="%")
        self.peak = Row(name="memory peak of the cgroup", unit="MiB")
        self.most = Row(name=f"memory peak with {MANY // 1000} 000 ids and {STORM} XIDs", unit="MiB", below=150)
        self.killed = Row(name="containers that ended in that", unit="", exactly=0)

    def all(self) -> list[Row]:
        return [row for row in vars(self).values() if row.ours]


class Moment(NamedTuple):
    """When something happened, and where the kubelet's log ended then."""

    at: float
    mark: int


class Bench:
    def __init__(self, node: Node, rows: Rows) -> None:
        self.node = node
        self.rows = rows
        self.daemonset: DaemonSet
        self.agent: AgentPod
        self.floor: Process

    async def begin(self) -> None:
        self.daemonset = await deploy(self.node, config=PLAIN, gpus=f"{GPUS}xH100")
        self.agent = await self.daemonset.serving(within=WITHIN)
        await self.start_floor()
        for resource in (GPU, FLOOR):
            await self.node.resource(resource, allocatable=GPUS, capacity=GPUS, within=WITHIN)

    async def start_floor(self) -> None:
        log = Log(self.node.folder / "log" / "peer")
        mark = log.mark()
        groups = [_group(self.node, each) for each in ("memory", "cpuacct")]
        command = [
            sys.executable,
            "-m",
            "tests.e2e.peer",
            PLUGINS,
            FLOOR,
            *(g.uuid for g in Hardware(f"{GPUS}xH100").gpus),
        ]
        with log.path.open("ab") as out:
            self.floor = self.node.world.start(command, stdout=out.fileno(), cwd=ROOT, groups=groups)
        await log.until("^served$", since=mark, within=WITHIN)

    def now(self) -> Moment:
        return Moment(time.time(), self.node.kubelet.log.mark())

    async def logged(self, since: Moment, pattern: str) -> float:
        """Milliseconds until the kubelet logged this."""
        return _apart(since.at, await self.node.kubelet.log.until(pattern, since=since.mark, within=WITHIN))

    async def healthy(self, since: Moment, resource: str, count: int) -> float:
        return await self.logged(since, f'Processed device updates.*resourceName="{resource}" .*healthyCount={count}$')

    async def pod(self, resource: str) -> float:
        begun = time.monotonic()
        await self.node.create_pod("measured", {resource: 1})
        await self.node.running("measured", within=WITHIN)
        taken = time.monotonic() - begun
        assert len((await self.node.inside("measured")).environment["NVIDIA_VISIBLE_DEVICES"].split(",")) == 1
        mark = self.agent.log.mark()
        await self.node.delete_pod("measured", within=WITHIN)
        if resource == GPU:
            # A kubelet that restarts before the agent has seen that would be taken for one that forgot its pod.
            await self.agent.log.event("hold.ended", since=mark, within=WITHIN)
        return taken * 1000

    async def fault(self) -> None:
        """One of each turns unhealthy and healthy again."""
        for resource, rows in ((GPU, "ours"), (FLOOR, "floor")):
            since = self.now()
            if resource == GPU:
                await self.agent.inject(f"xid={FATAL}", "gpu=3")
            else:
                self.floor.send(signal.SIGUSR1)
            getattr(self.rows.kubelet, rows).append(await self.healthy(since, resource, GPUS - 1))
            await self.node.resource(resource, allocatable=GPUS - 1, within=WITHIN)
            getattr(self.rows.node, rows).append((time.time() - since.at) * 1000)
            if resource == GPU:
                await self.agent.inject("clear", "gpu=3", "reason=measured")
            else:
                self.floor.send(signal.SIGUSR1)
            await self.node.resource(resource, allocatable=GPUS, within=WITHIN)

    async def restarts(self) -> None:
        """Of the kubelet, which the floor does not survive, and of both plugins."""
        since = self.now()
        await self.node.kubelet.restart()
        accepts = await self.node.kubelet.log.until(
            "Starting device plugin registration server|Serving device plugin registration server",
            since=since.mark,
            within=WITHIN,
        )
        listed = await self.logged(since, f'State pushed for device plugin.*resource="{GPU}"')
        self.rows.back.ours.append(listed - _apart(since.at, accepts))
        self.floor.send(signal.SIGKILL)
        await self.floor.ended()
        await self.start_floor()
        await self.node.resource(FLOOR, allocatable=GPUS, within=WITHIN)
        await self.node.resource(GPU, allocatable=GPUS, within=WITHIN)

        since = self.now()
        os.kill(self.agent.pid, signal.SIGKILL)
        self.rows.gap.ours.append(await self.logged(since, f'State pushed for device plugin.*resource="{GPU}"'))
        self.agent = await self.daemonset.serving(after=self.agent, within=WITHIN)
        since = self.now()
        self.floor.send(signal.SIGKILL)
        await self.floor.ended()
        await self.start_floor()
        self.rows.gap.floor.append(await self.logged(since, f'State pushed for device plugin.*resource="{FLOOR}"'))

    async def edit(self) -> None:
        for text, count in ((SEVEN, GPUS - 1), (PLAIN, GPUS)):
            since = self.now()
            await self.daemonset.configure(text)
            applied = await self.healthy(since, GPU, count)
            seen = _swapped(self.agent.pid) - since.at
            self.rows.seen.ours.append(seen * 1000)
            self.rows.applied.ours.append(applied - seen * 1000)

    async def idle(self) -> None:
        groups = {"ours": partial(self.agent.cgroup, "cpuacct"), "floor": partial(_folder, self.node, "cpuacct")}
        before = {name: _used(group()) for name, group in groups.items()}
        await trio.sleep(IDLE)  # what is measured
        for name, group in groups.items():
            getattr(self.rows.cpu, name).append((_used(group()) - before[name]) / IDLE * 100)
        self.rows.peak.ours.append(_peak(self.agent.cgroup("memory")))
        self.rows.peak.floor.append(_peak(_folder(self.node, "memory")))

    async def many(self) -> None:
        """Very many ids, and a storm of XIDs with faults in between."""
        since = self.now()
        await self.daemonset.configure(SHARED)
        await self.healthy(since, GPU, MANY)
        chance = random.Random(5)
        for number in range(STORM):
            await self.agent.inject(f"xid={chance.choice(HARMLESS)}", f"gpu={chance.randrange(GPUS)}")
            if number % 200 == 0:
                since = self.now()
                await self.agent.inject(f"xid={FATAL}", "gpu=3")
                await self.healthy(since, GPU, MANY - MANY // GPUS)
                since = self.now()
                await self.agent.inject("clear", "gpu=3", "reason=measured")
                await self.healthy(since, GPU, MANY)
        self.rows.most.ours.append(_peak(self.agent.cgroup("memory")))
        now = await self.daemonset.serving(within=WITHIN)
        self.rows.killed.ours.append(float(now.container != self.agent.container))


def _apart(since: float, line: str) -> float:
    """Milliseconds from a time to that of a line of the kubelet's log, which says no year and no zone."""
    begun = datetime.fromtimestamp(since)
    logged = datetime.strptime(line.split()[1], "%H:%M:%S.%f").replace(begun.year, begun.month, begun.day)
    return (logged - begun).total_seconds() % 86400 * 1000


def _swapped(pid: int) -> float:
    """When the kubelet swapped the ConfigMap of a container: it makes this link anew."""
    return Path(f"/proc/{pid}/root/etc/gpu-reactor/..data").lstat().st_mtime


def _group(node: Node, controller: str) -> Path:
    """The floor's cgroup, as the node sees it."""
    _folder(node, controller).mkdir(exist_ok=True)
    return (cgroups.ROOT if cgroups.unified() else cgroups.ROOT / controller) / "floor"


def _folder(node: Node, controller: str) -> Path:
    return node.world.cgroup_folder(controller, "floor")


def _used(group: Path) -> float:
    """Seconds of a processor that a cgroup has used."""
    if cgroups.unified():
        return int((group / "cpu.stat").read_text().split()[1]) / 1e6
    return int((group / "cpuacct.usage").read_text()) / 1e9


def _peak(group: Path) -> float:
    """The most memory that a cgroup had, in MiB: file caches and tmpfs count, as they do for its limit."""
    return int((group / ("memory.peak" if cgroups.unified() else "memory.max_usage_in_bytes")).read_text()) / 2**20


async def play(version: str, rounds: int) -> Rows:
    node, rows = Node(version), Rows()
    try:
        await node.up()
        bench = Bench(node, rows)
        await bench.begin()
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            rows.pod.ours.append(await bench.pod(GPU))
            rows.pod.floor.append(await bench.pod(FLOOR))
            await bench.fault()
            await bench.edit()
            await bench.restarts()
        print(f"{IDLE:.0f} idle seconds, then {MANY} ids and {STORM} XIDs", file=sys.stderr)
        await bench.idle()
        await bench.many()
    except AssertionError as exc:
        exc.add_note(f"everything of the node: {await keep(node, 'bench-node', node.cache / 'failed')}")
        raise
    finally:
        node.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds (default 5)")
    parser.add_argument("--version", choices=WHOLE, default=WHOLE[-1], help=f"of Kubernetes (default {WHOLE[-1]})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every number to this file")
    args = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    try:
        need_all([args.version])
        found = trio.run(play, args.version, args.rounds).all()
    except (NotHere, NotBuilt) as exc:
        print(f"bench-node: {exc}", file=sys.stderr)
        return 1
    print(render(found))
    if args.json is not None:
        args.json.write_text(json.dumps([row.document() for row in found], indent=2) + "\n")
    return int(any(row.met is False for row in found))


if __name__ == "__main__":
    sys.exit(main())
