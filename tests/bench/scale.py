"""What is measured with very many ids, and in a storm. There is no floor: a plugin that only answers has neither."""

from __future__ import annotations

import random
import time
from itertools import cycle

from tests.bench.floor import GPUS
from tests.bench.kubelet import allocate_request, ids, prefer_request
from tests.bench.processes import Agent, memory
from tests.bench.rows import FATAL, SHARED
from tests.bench.table import Row, quantile

MANY = (4_000, 16_000, 60_000)
"""Ids of sixteen GPUs. The last is about what the kubelet takes: 4 MiB of list."""
SCALE_GPUS = 16
FAULTS, ALLOCATES, PREFERS = 32, 200, 10
STORM = 10_000
SHARES = 2
HARMLESS = (13, 31, 45)
APART = 0.0005
"""Seconds. Faster, and what is measured is the queue of the simulated hardware, which is a Python process."""
EVERY, LOOK = 100, 500
"""Events between two faults whose lists are timed, and between two looks at what waits."""


class ScaleRows:
    """The rows of one number of ids."""

    def __init__(self, count: int) -> None:
        self.count = count
        name = f"{count // 1000} 000 ids: "
        usual = count == MANY[1]
        self.list = Row(name=name + "config edit -> list", unit="ms")
        self.fault = Row(name=name + "XID -> list, p50", unit="ms")
        self.fault99 = Row(name=name + "XID -> list, p99", unit="ms", below=20 if usual else None)
        self.allocate = Row(name=name + "Allocate, p50", unit="us")
        self.prefer = Row(name=name + "GetPreferredAllocation of 4, all free, p50", unit="ms")
        self.status = Row(name=name + "/debug/state, p50", unit="ms")
        self.size = Row(name=name + "size of the list", unit="MB", below=4.194304)
        self.rss = Row(name=name + "RSS, agent + worker", unit="MB")

    def all(self) -> tuple[Row, ...]:
        return tuple(row for row in vars(self).values() if isinstance(row, Row))


class GrowthRows:
    """Linear: what an id costs is the same however many there are."""

    def __init__(self) -> None:
        few, many = f"{MANY[0] // 1000} 000", f"{MANY[-1] // 1000} 000"
        self.list = Row(name=f"an id of {many} over one of {few}: config edit -> list", unit="x", below=1.3)
        self.fault = Row(name=f"an id of {many} over one of {few}: XID -> list", unit="x", below=1.3)
        self.allocate = Row(name=f"Allocate with {many} over Allocate with {few}", unit="x", below=1.3)
        self.memory = Row(name=f"an id of {many}: memory", unit="kB", below=2)

    def all(self) -> tuple[Row, ...]:
        return tuple(vars(self).values())

    def compare(self, few: ScaleRows, many: ScaleRows) -> None:
        """One number of each round that both were measured in."""
        for row, old, new, an_id in (
            (self.list, few.list, many.list, True),
            (self.fault, few.fault, many.fault, True),
            (self.allocate, few.allocate, many.allocate, False),
        ):
            times = many.count / few.count if an_id else 1.0
            row.ours = [b / a / times for a, b in zip(old.ours, new.ours, strict=True)]
        ids = many.count - few.count
        self.memory.ours = [(b - a) * 1000 / ids for a, b in zip(few.rss.ours, many.rss.ours, strict=True)]


class StormRows:
    def __init__(self) -> None:
        name = "storm of 10 000 events: "
        self.storm = Row(name=name + "XID -> list, p50", unit="ms")
        self.storm99 = Row(name=name + "XID -> list, p99", unit="ms", below=20)
        self.answer = Row(name=name + "Allocate, worst", unit="ms", below=100)
        self.waiting = Row(name=name + "events waiting for handlers, at most", unit="", below=100)
        self.right = Row(name=name + "end -> right list", unit="ms", below=1000)
        self.grown = Row(name=name + "RSS grown by", unit="MB", below=5)
        self.lines = Row(name=name + "lines of log", unit="", below=100)

    def all(self) -> tuple[Row, ...]:
        return tuple(vars(self).values())


def measure_scale(agent: Agent, rows: ScaleRows) -> None:
    """Begins with sixteen whole GPUs."""
    replicas = rows.count // SCALE_GPUS
    begun = agent.swap(SHARED.format(replicas))
    came, _ = agent.kubelet.await_healthy(rows.count)
    rows.list.ours.append((came - begun) / 1e6)
    agent.kubelet.forget(quiet=6)  # the whole ids leave
    taken = [_fault(agent, number % SCALE_GPUS, rows.count, replicas) for number in range(FAULTS)]
    rows.fault.ours.append(quantile(taken, 0.5))
    rows.fault99.ours.append(quantile(taken, 0.99))
    rows.size.ours.append(len(agent.kubelet.newest) / 1e6)
    names = sorted(ids(agent.kubelet.newest))
    requests = cycle([allocate_request(one) for one in names[::37]])
    rows.allocate.ours.append(quantile([agent.kubelet.allocate(next(requests)) for _ in range(ALLOCATES)], 0.5))
    asked = prefer_request(names, 4)
    rows.prefer.ours.append(quantile([agent.kubelet.prefer(asked) / 1000 for _ in range(PREFERS)], 0.5))
    rows.status.ours.append(quantile([_state(agent) for _ in range(10)], 0.5))
    rows.rss.ours.append(memory(agent.pids())["Rss"])


def measure_storm(agent: Agent, rows: StormRows) -> None:
    """Events of every kind, 2000 a second, some of them faults whose lists are timed. The agent has metrics."""
    chance = random.Random(3)
    everything = SHARES * GPUS
    agent.hardware.do("xid", 7, FATAL)
    _, message = agent.kubelet.await_healthy(everything - SHARES)
    sound = [one for one, health in ids(message).items() if health == "Healthy"]  # of the seven that no fault is to hit
    agent.clear(7)
    agent.kubelet.await_healthy(everything)
    requests = cycle([allocate_request(one) for one in sorted(sound)])
    before, logged = memory(agent.pids())["Rss"], len(agent.log())
    faults, answers, waiting = [], [], []
    begun = time.monotonic()
    for number in range(STORM):
        time.sleep(max(0.0, begun + number * APART - time.monotonic()))
        kind = chance.randrange(100)
        if number % EVERY == 0:
            faults.append(_fault(agent, 7, everything, SHARES))
        elif number % LOOK == LOOK // 2:
            waiting.append(agent.waiting())
        elif kind < 90:
            agent.hardware.do("xid", chance.randrange(7), chance.choice(HARMLESS))
        elif kind < 97:
            answers.append(agent.kubelet.allocate(next(requests)))
        else:
            agent.swap(SHARED.format(SHARES))  # as it is: the file is touched
    last = agent.hardware.do("xid", 6, FATAL)
    rows.right.ours.append((agent.kubelet.await_healthy(everything - SHARES)[0] - last) / 1e6)
    rows.storm.ours.append(quantile(faults, 0.5))
    rows.storm99.ours.append(quantile(faults, 0.99))
    rows.answer.ours.append(max(answers) / 1000)
    rows.waiting.ours.append(max(waiting))
    rows.grown.ours.append(memory(agent.pids())["Rss"] - before)
    rows.lines.ours.append(len(agent.log()) - logged)


def _fault(agent: Agent, gpu: int, everything: int, shares: int) -> float:
    """From a fault of a GPU to the list that marks it, in ms; then it is mended."""
    begun = agent.hardware.do("xid", gpu, FATAL)
    came, _ = agent.kubelet.await_healthy(everything - shares)
    agent.clear(gpu)
    agent.kubelet.await_healthy(everything)
    return (came - begun) / 1e6


def _state(agent: Agent) -> float:
    begun = time.perf_counter()
    agent.ask("GET", "/debug/state")
    return (time.perf_counter() - begun) * 1000
