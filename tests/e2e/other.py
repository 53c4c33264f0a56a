"""Another device plugin in a node: the process of peer.py, as tests start and end it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from tests.e2e.agent import ROOT
from tests.e2e.logs import Log
from tests.e2e.node import PLUGINS, Node
from tests.e2e.world import Process


async def start_other(node: Node, resource: str, ids: Sequence[str]) -> Process:
    """Returns once it is registered."""
    log = Log(node.folder / "log" / "peer")
    mark = log.mark()
    with log.path.open("ab") as out:
        command = [sys.executable, "-m", "tests.e2e.peer", PLUGINS, resource, *ids]
        process = node.world.start(command, stdout=out.fileno(), cwd=ROOT)
    await log.until("^served$", since=mark)
    return process


async def end_other(process: Process) -> None:
    process.send(signal.SIGTERM)
    assert await process.ended() == 0
