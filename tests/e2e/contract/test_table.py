"""Real kubelets keep the table: one node a version, rows side by side, those that disturb it one after another.

``ROWS=regex`` in the environment picks rows by name, for one who works on them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pprint import pformat

import grpc
import pytest
import trio

from reactor.simulate.kubelet.topology import Policy
from tests.contract.table.row import Row
from tests.contract.table.table import ROWS
from tests.e2e.contract.real import Real, two_numa_nodes
from tests.e2e.node import Node

AT_ONCE = 8
"""Rows that share the kubelet. More would only make its sync loop the thing that is measured."""
MINUTE = 60.0
"""Seconds for which the kubelet's own tests look whether something happens."""
_FAILURES = (AssertionError, LookupError, ValueError, OSError, grpc.RpcError, trio.TooSlowError, ExceptionGroup)
"""What a probe that meets a surprise raises; it must not keep the other rows from being looked at."""


async def _hold(row: Row, kubelet: Real) -> str:
    """Why the row does not hold; empty if it does."""
    expected = row.expects(kubelet.version)
    begun = time.monotonic()
    try:
        seen = await row.probe(kubelet)
    except _FAILURES as error:
        seen = f"{error!r}"
    print(f"{row.name}: {'holds' if seen == expected else 'DIFFERS'} ({time.monotonic() - begun:.1f} s)")
    if seen == expected:
        return ""
    return f"{row.name} (spec {row.section})\n  expected {pformat(expected)}\n  seen     {pformat(seen)}"


async def _together(rows: Iterable[Row], kubelet: Real) -> list[str]:
    found: list[str] = []
    room = trio.CapacityLimiter(AT_ONCE)

    async def hold(row: Row) -> None:
        async with room:
            found.append(await _hold(row, kubelet))

    async with trio.open_nursery() as nursery:
        for row in rows:
            nursery.start_soon(hold, row)
    return found


async def _restored(node: Node, kubelet: Real) -> None:
    """As a row that runs alone would have it: API server answering, kubelet up, no policy, no pod."""
    node.apiserver.resume()
    if node.kubelet.alive and not node.kubelet.settings.get("topologyManagerPolicy"):
        return
    if node.kubelet.alive:
        await kubelet.kill()
    await kubelet.start(policy=Policy.NONE)


def _picked(rows: Iterable[Row]) -> list[Row]:
    picked = re.compile(os.environ.get("ROWS", ""))
    return [row for row in rows if picked.search(row.name)]


async def _keep(kubelet: Real, rows: Sequence[Row]) -> None:
    node = kubelet.node
    wrong = await _together((row for row in rows if not row.alone), kubelet)
    for row in rows:
        if row.alone:
            wrong.append(await _hold(row, kubelet))
            await _restored(node, kubelet)
    wrong = [each for each in wrong if each]
    assert not wrong, f"a {node.version} kubelet does otherwise:\n" + "\n".join(wrong)


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_a_real_kubelet_keeps(version: str, make_node: Callable[..., Node]) -> None:
    node = make_node(version)
    node.kubelet.settings["nodeStatusUpdateFrequency"] = "1s"
    await two_numa_nodes(node)
    await node.up()
    await _keep(Real(node), _picked(row for row in ROWS if not row.long))


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.34", "1.37"])
async def test_a_real_kubelet_keeps_what_takes_minutes(version: str, make_node: Callable[..., Node]) -> None:
    node = make_node(version)
    await node.up()
    await _keep(Real(node, quiet=MINUTE), _picked(row for row in ROWS if row.long or row.window))
