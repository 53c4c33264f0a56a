"""A node for a real agent: a kubelet on real sockets, GPUs that outlive the agent, and a way to start agents.

The hardware and the kubelet live in the test's process, so that both can be told what happens. Agents are processes;
whatever a test does, they are gone when it ends, and none has complained on stderr.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from tests.process.node import Node


@pytest.fixture
def root() -> Iterator[Path]:
    """pytest's own directories are too long for the path of a unix socket."""
    with tempfile.TemporaryDirectory(prefix="gr-") as name:
        yield Path(name)


@pytest.fixture
async def node(root: Path) -> AsyncIterator[Node]:
    async with trio.open_nursery() as nursery, Node.opened(root, nursery) as node:
        try:
            yield node
            await node.end_agents()
        finally:
            node.kill_agents()
        nursery.cancel_scope.cancel()
