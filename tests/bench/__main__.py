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

from tests.bench import rows as measure
from tests.bench import scale
from tests.bench.floor import GPUS
from tests.bench.processes import Agent, Floor
from tests.bench.rows import SHARED, Rows
from tests.bench.table import render

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
NAMES = (*PLAIN, *SHARED_ROWS, "idle", "scale", "storm")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of every row (default 5)")
    parser.add_argument("--only", choices=NAMES, action="append", metavar="ROW", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every number to this file")
    args = parser.parse_args()
    wanted: list[str] = args.only or list(NAMES)
    rows, scale_rows = Rows(), scale.ScaleRows()
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="gr-") as folder:
        run(Path(folder), args.rounds, wanted, rows)
        run_scale(Path(folder), args.rounds, wanted, scale_rows)
    found = [row for row in (*rows.all(), *scale_rows.all()) if row.ours]
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


def run_scale(folder: Path, rounds: int, wanted: list[str], rows: scale.ScaleRows) -> None:
    """Agents alone: these rows have no floor."""
    for number in range(rounds):
        for name, config, measured in (
            ("scale", "version: v1\n", scale.measure_scale),
            ("storm", SHARED.format(2), scale.measure_storm),
        ):
            if name in wanted:
                with Agent(folder / f"{number}{name}", config=config) as agent:
                    agent.start()
                    agent.kubelet.forget(quiet=1.5)
                    measured(agent, rows)


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
