"""What a busy node does in an hour, played at full speed, and what memory that leaves behind.

The first hours fill what is meant to be kept (the newest lines of the log, caches, the heap of the interpreter). What
later ones add would go on for ever, so theirs is the row with a goal.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle

from tests.bench.floor import GPUS
from tests.bench.kubelet import Kubelet, allocate_request, healthy, ids, prefer_request
from tests.bench.processes import Agent, memory
from tests.bench.rows import FATAL, SHARED
from tests.bench.table import Row

WARM, HOURS = 4, 4
"""Hours that fill, and hours that are to add nothing."""
HOUR = {
    "harmless": 2000,
    "granted": 600,
    "preferred": 600,
    "read": 120,
    "touched": 60,
    "looked": 120,
    "condemned": 30,
    "edited": 12,
    "unplugged": 2,
    "restarted": 4,
}
"""How often what happens: XIDs of programs, pods, SIGHUPs (each a scan and a look at the config, as resyncs are), files
written without a change, ``status``, GPUs that fall ill and are mended, config edits, hot plugs, kubelet restarts.
"""
CALM = 1.0
"""Seconds after a GPU came: for a moment two workers watch, and a fault may be told again after it was mended."""
HARMLESS = (13, 31, 45)


class HourRows:
    def __init__(self) -> None:
        self.first = Row(name="events of 4 hours: RSS grown by", unit="MB", below=8)
        self.later = Row(name="events of 4 more hours: RSS grown in each", unit="MB", below=0.5)
        self.rss = Row(name="after these 8 hours: RSS, agent + worker", unit="MB")
        self.pss = Row(name="after these 8 hours: PSS, agent + worker", unit="MB", below=55)

    def all(self) -> tuple[Row, ...]:
        return tuple(vars(self).values())


def measure_hours(agent: Agent, rows: HourRows) -> None:
    """Begins with eight GPUs in two shares each."""
    chance, names = random.Random(7), list(ids(agent.kubelet.newest))
    sizes = [memory(agent.pids())["Rss"]]
    for hours in (WARM, HOURS):
        for _ in range(hours):
            _Hour(agent, chance, names).play()
        sizes.append(memory(agent.pids())["Rss"])
    rows.first.ours.append(sizes[1] - sizes[0])
    rows.later.ours.append((sizes[2] - sizes[1]) / HOURS)
    rows.rss.ours.append(sizes[-1])
    rows.pss.ours.append(memory(agent.pids())["Pss"])


class _Hour:
    def __init__(self, agent: Agent, chance: random.Random, names: Sequence[str]) -> None:
        """``names``: the ids that are always there, those of the last GPU last."""
        self._agent = agent
        self._kubelet: Kubelet = agent.kubelet
        self._chance = chance
        self._replicas = 2
        self._names = names
        self._ids = cycle(names)
        self._granted: set[str] = set()

    def play(self) -> None:
        """All of it in one shuffled order; at the end every GPU is here and healthy, and cut in two."""
        words = [word for word, times in HOUR.items() for _ in range(times)]
        self._chance.shuffle(words)
        does = {
            "harmless": lambda: self._agent.hardware.do("xid", self._any(), self._chance.choice(HARMLESS)),
            "granted": self._grant,
            "preferred": lambda: self._kubelet.prefer(prefer_request(self._names, 4)),
            "read": self._agent.hang_up,
            "touched": lambda: self._agent.swap(SHARED.format(self._replicas)),
            "looked": lambda: self._agent.ask("GET", "/debug/state"),
            "condemned": self._condemn,
            "edited": self._edit,
            "unplugged": self._unplug,
            "restarted": self._restart,
        }
        for word in words:
            does[word]()
        self._kubelet.forget(quiet=1.0)

    def _any(self) -> int:
        return self._chance.randrange(GPUS)

    def _until(self, count: int) -> None:
        if healthy(self._kubelet.newest) != count:
            self._kubelet.await_healthy(count)

    def _grant(self) -> None:
        one = next(self._ids)
        self._kubelet.allocate(allocate_request(one))
        self._granted.add(one)

    def _condemn(self) -> None:
        gpu = self._any()
        self._agent.hardware.do("xid", gpu, FATAL)
        self._until(self._replicas * (GPUS - 1))
        self._agent.clear(gpu)
        self._until(self._replicas * GPUS)

    def _edit(self) -> None:
        """One share more for a moment: nothing that is held has a reason to leave."""
        self._replicas = 3
        self._agent.swap(SHARED.format(3))
        self._until(3 * GPUS)
        self._replicas = 2
        self._agent.swap(SHARED.format(2))
        self._until(2 * GPUS)

    def _unplug(self) -> None:
        self._agent.hardware.do("unplug", GPUS - 1)
        self._until(2 * (GPUS - 1))
        self._agent.hardware.do("plug", GPUS - 1)
        self._agent.clear(self._names[-1].partition("::")[0])  # or it would be watched for 5 s, the third time for ever
        self._until(2 * GPUS)
        self._kubelet.forget(quiet=CALM)

    def _restart(self) -> None:
        """A kubelet begins with its books: one that had lost them would be refused what its pods may have."""
        self._kubelet.stop()
        self._kubelet.write_down(self._granted)
        self._kubelet.start()
        self._kubelet.next_list()
