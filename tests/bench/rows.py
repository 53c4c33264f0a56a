"""What is measured in each round. A measurement takes both plugins and adds one number of each to its rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle

from tests.bench.floor import IDS
from tests.bench.kubelet import allocate_request, ids
from tests.bench.processes import Agent, Floor, Plugin, cpu, memory
from tests.bench.table import Row, quantile

AWAY = 5.0
SETTLE = 1.5
"""Seconds after the first list at which memory is read: all that a start needs is over."""
IDLE = 60.0
EDITS, BURSTS, CALLS = 8, 10, 400
APART, CALM = 0.003, 0.2
"""Seconds between the faults of a burst, and without a list before a burst: mended GPUs are scanned again."""
FATAL = 79
SHARED = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {}\n"


class Rows:
    """The rows, each under the word that ``--only`` takes."""

    def __init__(self) -> None:
        self.start = Row(name="process start -> first list", unit="ms", below=400)
        self.inits = Row(name="NVML workers in that life", unit="", exactly=1)
        self.rss = Row(name="RSS, agent + worker", unit="MB")
        self.pss = Row(name="PSS, agent + worker", unit="MB", below=55)
        self.edit = Row(name="config edit -> new list", unit="ms", below=300)
        self.gap = Row(name="gap at an edit: streams ended, ids lost", unit="", exactly=0)
        self.fault = Row(name="XID at the C function -> list, p50", unit="ms", below=1)
        self.fault99 = Row(name="XID at the C function -> list, p99", unit="ms")
        self.first = Row(name="the same after a quiet time, p50", unit="ms")
        self.back = Row(name="kubelet back, accepting -> list", unit="ms", below=20)
        self.allocate = Row(name="Allocate, sequential, p50", unit="us", ratio_below=1.2)
        self.allocate99 = Row(name="Allocate, sequential, p99", unit="us")
        self.blocked = Row(name="Allocate, worst in 1.5 s of a blocked main thread", unit="ms", below=100)
        self.idle = Row(name="CPU in an idle minute", unit="ms", below=100)

    def all(self) -> tuple[Row, ...]:
        return tuple(vars(self).values())


def measure_start(agent: Agent, floor: Floor, rows: Rows) -> None:
    for plugin, values in ((agent, rows.start.ours), (floor, rows.start.floor)):
        plugin.start()
        came, message = plugin.kubelet.next_list()
        while len(ids(message)) < len(IDS):
            came, message = plugin.kubelet.next_list()
        values.append((came - plugin.started_ns) / 1e6)


def measure_memory(agent: Agent, floor: Floor, rows: Rows) -> None:
    time.sleep(SETTLE)
    for plugin, rss, pss in (
        (agent, rows.rss.ours, rows.pss.ours),
        (floor, rows.rss.floor, rows.pss.floor),
    ):
        used = memory(plugin.pids())
        rss.append(used["Rss"])
        pss.append(used["Pss"])
    rows.inits.ours.append(sum(line["event"] == "worker.started" for line in agent.log()))


def measure_edit(agent: Agent, floor: Floor, rows: Rows) -> None:
    """Each edit adds a share to every GPU, so the list grows and nothing has a reason to leave it."""
    taken, told, lost = [], [], 0
    streams, known = agent.kubelet.streams, set[str]()
    for replicas in range(3, 3 + EDITS):
        begun = agent.swap(SHARED.format(replicas))
        came, message = agent.kubelet.next_list()
        taken.append((came - begun) / 1e6)
        healthy = {one for one, health in ids(message).items() if health == "Healthy"}
        lost += len(known - healthy) + (len(healthy) != replicas * len(IDS))
        known = healthy
        told.append(_told(floor))
        agent.kubelet.forget(quiet=0.03 * (replicas % 4))  # not in step with the watch
    rows.edit.ours.append(quantile(taken, 0.5))
    rows.edit.floor.append(quantile(told, 0.5))
    rows.gap.ours.append(lost + agent.kubelet.streams - streams)


def measure_fault(agent: Agent, floor: Floor, rows: Rows) -> None:
    """Bursts of one fault a GPU, a few ms apart: the first of each finds every process asleep and its caches cold."""
    first, rest, told = [], [], []
    for _ in range(BURSTS):
        agent.kubelet.forget(quiet=CALM)
        for gpu in range(len(IDS)):
            time.sleep(APART)
            begun = agent.hardware.do("xid", gpu, FATAL)
            came, message = agent.kubelet.next_list()
            (rest if gpu else first).append((came - begun) / 1e6)
            if list(ids(message).values()).count("Unhealthy") != gpu + 1:
                raise RuntimeError("a list came that lacks the fault, or shows another one")
        for gpu in range(len(IDS)):
            agent.clear(gpu)
            agent.kubelet.next_list()
        told.extend(_told(floor) for _ in range(len(IDS)))
    for row, taken, part in ((rows.fault, rest, 0.5), (rows.fault99, rest, 0.99), (rows.first, first, 0.5)):
        row.ours.append(quantile(taken, part))
        row.floor.append(quantile(told, part))


def _told(floor: Floor) -> float:
    """From a line on its stdin to the list, in ms."""
    floor.kubelet.forget(quiet=APART)
    begun = floor.tell("list")
    return (floor.kubelet.next_list()[0] - begun) / 1e6


def measure_back(agent: Agent, floor: Floor, rows: Rows) -> None:
    """Both kubelets go, and come back one after the other. The floor is told, so it need not find out."""
    for plugin in (agent, floor):
        plugin.kubelet.stop()
    time.sleep(AWAY)
    begun = agent.kubelet.start()
    rows.back.ours.append((agent.kubelet.next_list()[0] - begun) / 1e6)
    begun = floor.kubelet.start()
    floor.tell("again")
    rows.back.floor.append((floor.kubelet.next_list()[0] - begun) / 1e6)


def measure_allocate(agent: Agent, floor: Floor, rows: Rows) -> None:
    agent.kubelet.forget(quiet=0.2)
    for plugin, p50, p99 in (
        (agent, rows.allocate.ours, rows.allocate99.ours),
        (floor, rows.allocate.floor, rows.allocate99.floor),
    ):
        requests = _requests(plugin)
        taken = [plugin.kubelet.allocate(next(requests)) for _ in range(CALLS)]
        p50.append(quantile(taken, 0.5))
        p99.append(quantile(taken, 0.99))


def _requests(plugin: Plugin) -> Iterator[bytes]:
    """Allocate requests for one healthy device after the other."""
    found = ids(plugin.kubelet.newest)
    return cycle([allocate_request(one) for one in sorted(found) if found[one] == "Healthy"])


def measure_blocked(agent: Agent, floor: Floor, rows: Rows) -> None:
    for plugin, values in ((agent, rows.blocked.ours), (floor, rows.blocked.floor)):
        requests = _requests(plugin)
        plugin.block()
        end, taken = time.monotonic() + 1.4, []
        while time.monotonic() < end:
            taken.append(plugin.kubelet.allocate(next(requests)))
            time.sleep(0.01)
        plugin.await_release()
        values.append(max(taken) / 1000)


def measure_idle(pairs: list[tuple[Agent, Floor]], rows: Rows) -> None:
    """All pairs at once: a minute is long, and idle processes do not disturb each other."""
    begun = [(cpu(agent.pids()), cpu(floor.pids())) for agent, floor in pairs]
    time.sleep(IDLE)
    for (agent, floor), (ours, other) in zip(pairs, begun, strict=True):
        rows.idle.ours.append(cpu(agent.pids()) - ours)
        rows.idle.floor.append(cpu(floor.pids()) - other)
