"""``make bench``: what the agent takes, beside a floor that was measured in the same minutes.

Every round starts a fresh agent (simulated NVML in a process of its own) and a fresh floor (``floor.py``), each under a
measuring kubelet in this process, and gives one number to each row. The table shows medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench import hour, scale
from tests.bench import rows as measure
from tests.bench.floor import GPUS
from tests.bench.processes import Agent, Floor
from tests.bench.rows import SHARED, Rows
from tests.bench.table import Row, render

PLAIN = {
    "start": measure.measure_start,
    "memory": measure.measure_memory,
    "fault": measure.measure_fault,
    "back": measure.measure_back,
    "allocate": measure.measure_allocate,
    "crowd": measure.measure_crowd,
    "prefer": measure.measure_prefer,
    "status": measure.measure_status,
}
SHARED_ROWS = {"edit": measure.measure_edit, "blocked": measure.measure_blocked}
NAMES = (*PLAIN, *SHARED_ROWS, "idle", "scale", "storm", "hour")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of every row (default 5)")
    parser.add_argument("--only", choices=NAMES, action="append", metavar="ROW", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every number to this file")
    args = parser.parse_args()
    wanted: list[str] = args.only or list(NAMES)
    rows, alone = Rows(), Alone()
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="gr-") as folder:
        run(Path(folder), args.rounds, wanted, rows)
        run_alone(Path(folder), args.rounds, wanted, alone)
    found = [row for row in (*rows.all(), *alone.all()) if row.ours]
    print(render(found))
    if args.json is not None:
        args.json.write_text(json.dumps([row.document() for row in found], indent=2) + "\n")
    return int(any(row.met is False for row in found))


def run(folder: Path, rounds: int, wanted: list[str], rows: Rows) -> None:
    with pair(folder / "warm") as (agent, floor):  # leaves compiled modules and a warm page cache behind
        measure.measure_start(agent, floor, Rows())
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        if any(name in wanted for name in PLAIN):
            with pair(folder / f"{number}") as (agent, floor):
                measure.measure_start(agent, floor, rows if "start" in wanted else Rows())
                for name in (name for name in PLAIN if name in wanted and name != "start"):
                    PLAIN[name](agent, floor, rows)
        if "prefer" in wanted:
            with pair(folder / f"{number}p", gpus=2 * GPUS) as (agent, floor):
                measure.measure_start(agent, floor, Rows())
                measure.measure_prefer(agent, floor, rows)
        if any(name in wanted for name in SHARED_ROWS):
            with pair(folder / f"{number}s", config=SHARED.format(2), blocking=True) as (agent, floor):
                measure.measure_start(agent, floor, Rows())
                for name in (name for name in SHARED_ROWS if name in wanted):
                    SHARED_ROWS[name](agent, floor, rows)
    if "idle" in wanted:
        print(f"{measure.IDLE:.0f} idle seconds", file=sys.stderr)
        with ExitStack() as stack:
            pairs = [stack.enter_context(pair(folder / f"{number}i")) for number in range(rounds)]
            for agent, floor in pairs:
                measure.measure_start(agent, floor, Rows())
            measure.measure_idle(pairs, rows)


class Alone:
    """Rows without a floor: a plugin that only answers has nothing of the kind."""

    def __init__(self) -> None:
        self.scale = [scale.ScaleRows(count) for count in scale.MANY]
        self.growth = scale.GrowthRows()
        self.storm = scale.StormRows()
        self.hour = hour.HourRows()

    def all(self) -> tuple[Row, ...]:
        return tuple(row for rows in (*self.scale, self.growth, self.storm, self.hour) for row in rows.all())


def run_alone(folder: Path, rounds: int, wanted: list[str], rows: Alone) -> None:
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, agents alone", file=sys.stderr)
        if "scale" in wanted:
            for each in rows.scale:
                with ready(Agent(folder / f"{number}n{each.count}", gpus=scale.SCALE_GPUS)) as agent:
                    scale.measure_scale(agent, each)
        if "storm" in wanted:
            with ready(Agent(folder / f"{number}storm", config=SHARED.format(scale.SHARES), metrics=True)) as agent:
                scale.measure_storm(agent, rows.storm)
        if "hour" in wanted:
            with ready(Agent(folder / f"{number}hour", config=SHARED.format(2))) as agent:
                hour.measure_hours(agent, rows.hour)
    rows.growth.compare(rows.scale[0], rows.scale[-1])


@contextmanager
def ready(agent: Agent) -> Iterator[Agent]:
    """A started one, once it has said all that a start has to say."""
    with agent:
        agent.start()
        agent.kubelet.next_list()
        agent.kubelet.forget(quiet=measure.SETTLE)
        agent.await_admin()
        yield agent


@contextmanager
def pair(
    root: Path, *, config: str = "version: v1\n", gpus: int = GPUS, blocking: bool = False
) -> Iterator[tuple[Agent, Floor]]:
    root.mkdir()
    with (
        Agent(root / "agent", config=config, gpus=gpus, blocking=blocking) as agent,
        Floor(root / "floor", gpus=gpus, blocking=blocking) as floor,
    ):
        yield agent, floor


if __name__ == "__main__":
    sys.exit(main())
