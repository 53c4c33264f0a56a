"""What is measured in each round. A measurement takes both plugins and adds one number of each to its rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice

from tests.bench.floor import GPUS
from tests.bench.kubelet import allocate_request, ids, prefer_request
from tests.bench.processes import Agent, Floor, Plugin, cpu, memory, process
from tests.bench.table import Row, quantile

AWAY = 5.0
SETTLE = 1.5
"""Seconds after the first list at which memory is read: all that a start needs is over."""
IDLE = 60.0
EDITS, BURSTS, CALLS, LOOKS = 8, 10, 400, 10
CLIENTS = 16
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
        self.crowd = Row(name="Allocate, 16 clients at once, p50", unit="us")
        self.crowd99 = Row(name="Allocate, 16 clients at once, p99", unit="us")
        self.rate = Row(name="Allocate, 16 clients at once, calls a second", unit="")
        self.prefer4 = Row(name="GetPreferredAllocation, 4 of 8, p50", unit="us", ratio_below=1.5)
        self.prefer8 = Row(name="GetPreferredAllocation, 8 of 16, p50", unit="us", ratio_below=1.5)
        self.status = Row(name="gpu-reactor status, the whole process", unit="ms", below=60)
        self.blocked = Row(name="Allocate, worst in 1.5 s of a blocked main thread", unit="ms", below=100)
        self.idle = Row(name="CPU in an idle minute", unit="ms", below=100)

    def all(self) -> tuple[Row, ...]:
        return tuple(vars(self).values())


def measure_start(agent: Agent, floor: Floor, rows: Rows) -> None:
    for plugin, values in ((agent, rows.start.ours), (floor, rows.start.floor)):
        plugin.start()
        came, message = plugin.kubelet.next_list()
        while len(ids(message)) < plugin.gpus:
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
        lost += len(known - healthy) + (len(healthy) != replicas * GPUS)
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
        for gpu in range(GPUS):
            time.sleep(APART)
            begun = agent.hardware.do("xid", gpu, FATAL)
            came, message = agent.kubelet.next_list()
            (rest if gpu else first).append((came - begun) / 1e6)
            if list(ids(message).values()).count("Unhealthy") != gpu + 1:
                raise RuntimeError("a list came that lacks the fault, or shows another one")
        for gpu in range(GPUS):
            agent.clear(gpu)
            agent.kubelet.next_list()
        told.extend(_told(floor) for _ in range(GPUS))
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


def measure_crowd(agent: Agent, floor: Floor, rows: Rows) -> None:
    for plugin, p50, p99, rate in (
        (agent, rows.crowd.ours, rows.crowd99.ours, rows.rate.ours),
        (floor, rows.crowd.floor, rows.crowd99.floor, rows.rate.floor),
    ):
        taken, seconds = plugin.kubelet.crowd(CLIENTS, list(islice(_requests(plugin), CALLS // 4)))
        p50.append(quantile(taken, 0.5))
        p99.append(quantile(taken, 0.99))
        rate.append(len(taken) / seconds)


def measure_prefer(agent: Agent, floor: Floor, rows: Rows) -> None:
    """Half of the GPUs that there are, all of them free."""
    row = rows.prefer4 if agent.gpus == GPUS else rows.prefer8
    for plugin, values in ((agent, row.ours), (floor, row.floor)):
        available = sorted(ids(plugin.kubelet.newest))
        request = prefer_request(available, len(available) // 2)
        values.append(quantile([plugin.kubelet.prefer(request) for _ in range(CALLS)], 0.5))


def measure_status(agent: Agent, floor: Floor, rows: Rows) -> None:
    """The floor is an interpreter that does nothing."""
    command = (f"{sys.prefix}/bin/gpu-reactor", "status", "--admin-socket", agent.admin_socket)
    rows.status.ours.append(quantile([process(*command) for _ in range(LOOKS)], 0.5))
    rows.status.floor.append(quantile([process(sys.executable, "-c", "pass") for _ in range(LOOKS)], 0.5))


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
