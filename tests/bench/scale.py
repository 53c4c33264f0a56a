"""What is measured with very many ids, and in a storm. There is no floor: a plugin that only answers has neither."""

from __future__ import annotations

import random
import time
from itertools import cycle

from reactor.cli.client import ask
from tests.bench.floor import GPUS
from tests.bench.kubelet import allocate_request, ids
from tests.bench.processes import Agent, memory
from tests.bench.rows import FATAL, SHARED
from tests.bench.table import Row, quantile

REPLICAS = 2000
"""Of each of eight GPUs: as many ids as sixteen GPUs of a thousand make."""
FAULTS = 5
STORM = 10_000
HARMLESS = (13, 31, 45)
APART = 0.0005
"""Seconds. Faster, and what is measured is the queue of the simulated hardware, which is a Python process."""
EVERY = 100
"""Events between two faults whose lists are timed."""


class ScaleRows:
    def __init__(self) -> None:
        self.list = Row(name="16 000 ids: config edit -> list", unit="ms")
        self.fault = Row(name="16 000 ids: XID -> list, p50", unit="ms")
        self.fault99 = Row(name="16 000 ids: XID -> list, p99", unit="ms", below=20)
        self.allocate = Row(name="16 000 ids: Allocate, p50", unit="us")
        self.status = Row(name="16 000 ids: /debug/state, p50", unit="ms")
        self.rss = Row(name="16 000 ids: RSS, agent + worker", unit="MB")
        self.storm = Row(name="storm of 10 000 events: XID -> list, p50", unit="ms")
        self.storm99 = Row(name="storm of 10 000 events: XID -> list, p99", unit="ms", below=20)
        self.answer = Row(name="storm of 10 000 events: Allocate, worst", unit="ms", below=100)
        self.right = Row(name="storm of 10 000 events: end -> right list", unit="ms")
        self.grown = Row(name="storm of 10 000 events: RSS grown by", unit="MB", below=5)
        self.lines = Row(name="storm of 10 000 events: lines of log", unit="", below=100)

    def all(self) -> tuple[Row, ...]:
        return tuple(vars(self).values())


def measure_scale(agent: Agent, rows: ScaleRows) -> None:
    """Begins with eight whole GPUs."""
    begun = agent.swap(SHARED.format(REPLICAS))
    came, message = agent.kubelet.next_list()
    rows.list.ours.append((came - begun) / 1e6)
    while _healthy(message) < REPLICAS * GPUS:
        message = agent.kubelet.next_list()[1]
    agent.kubelet.forget(quiet=6)  # the whole ids leave
    taken = [_fault(agent, gpu) for gpu in list(range(GPUS)) * FAULTS]
    rows.fault.ours.append(quantile(taken, 0.5))
    rows.fault99.ours.append(quantile(taken, 0.99))
    requests = cycle([allocate_request(one) for one in sorted(ids(agent.kubelet.newest))[::37]])
    rows.allocate.ours.append(quantile([agent.kubelet.allocate(next(requests)) for _ in range(200)], 0.5))
    rows.status.ours.append(quantile([_state(agent) for _ in range(10)], 0.5))
    rows.rss.ours.append(memory(agent.pids())["Rss"])


def measure_storm(agent: Agent, rows: ScaleRows) -> None:
    """Events of every kind, 2000 a second, some of them faults whose lists are timed."""
    chance = random.Random(3)
    agent.hardware.do("xid", 7, FATAL)
    _, message = agent.kubelet.next_list()
    sound = [one for one, health in ids(message).items() if health == "Healthy"]  # of the seven that no fault is to hit
    agent.clear(7)
    agent.kubelet.next_list()
    requests = cycle([allocate_request(one) for one in sorted(sound)])
    before, logged = memory(agent.pids())["Rss"], len(agent.log())
    faults, answers = [], []
    begun = time.monotonic()
    for number in range(STORM):
        time.sleep(max(0.0, begun + number * APART - time.monotonic()))
        kind = chance.randrange(100)
        if number % EVERY == 0:
            faults.append(_fault(agent, 7))
        elif kind < 90:
            agent.hardware.do("xid", chance.randrange(7), chance.choice(HARMLESS))
        elif kind < 97:
            answers.append(agent.kubelet.allocate(next(requests)))
        else:
            agent.swap(SHARED.format(2))  # as it is: the file is touched
    last = agent.hardware.do("xid", 6, FATAL)
    rows.right.ours.append((agent.kubelet.next_list()[0] - last) / 1e6)
    if _healthy(agent.kubelet.newest) != 2 * (GPUS - 1):
        raise RuntimeError("the last list is not right")
    rows.storm.ours.append(quantile(faults, 0.5))
    rows.storm99.ours.append(quantile(faults, 0.99))
    rows.answer.ours.append(max(answers) / 1000)
    rows.grown.ours.append(memory(agent.pids())["Rss"] - before)
    rows.lines.ours.append(len(agent.log()) - logged)


def _fault(agent: Agent, gpu: int) -> float:
    """From a fault of a GPU to the list that marks it, in ms; then it is mended."""
    begun = agent.hardware.do("xid", gpu, FATAL)
    came, _ = agent.kubelet.next_list()
    agent.clear(gpu)
    agent.kubelet.next_list()
    return (came - begun) / 1e6


def _healthy(message: bytes) -> int:
    return list(ids(message).values()).count("Healthy")


def _state(agent: Agent) -> float:
    begun = time.perf_counter()
    status, _ = ask(str(agent.root / "agent.sock"), "GET", "/debug/state")
    if status != 200:
        raise RuntimeError("no state")
    return (time.perf_counter() - begun) * 1000
