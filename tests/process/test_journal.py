"""The journal of a real agent, replayed by the command."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from reactor.cli import main
from tests.process.node import Node, shared


async def test_the_life_of_an_agent_replays_with_the_same_verdicts(node: Node, capsys: pytest.CaptureFixture[str]):
    journal = node.root / "journal"
    agent = await node.start(journal=str(journal))
    await agent.settled()
    node.gpus.xid(0, 79)
    await agent.log.until("gpu.condemned")
    node.config.write_text(shared(2))
    await agent.log.until("config.applied", after=len(agent.log.lines))
    assert (await agent.end()).code == 0
    assert await trio.to_thread.run_sync(partial(main, ["replay", "-o", "json", "--color", "never", str(journal)])) == 0
    told = capsys.readouterr()
    assert "0 of them decided otherwise, 0 missing" in told.err
    for event in ("agent.started", "gpu.condemned", "config.applied", "agent.stopped"):
        assert f'"event":"{event}"' in told.out
