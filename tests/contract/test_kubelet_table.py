"""The simulated kubelet keeps the table, at every version that it is said to differ by.

The same rows run against real kubelets in ``tests/e2e``.
"""

from __future__ import annotations

import pytest

from reactor.simulate.kubelet.version import Version
from tests.contract.peer import short_directory
from tests.contract.table.row import ALWAYS, VERSIONS, Row
from tests.contract.table.simulated import simulated
from tests.contract.table.table import ROWS

BOTH_WAYS = {Version(1, 34), Version(1, 37)}
"""Of each way to keep plugins apart, one: enough for what is the same everywhere."""


def versions(row: Row) -> list[Version]:
    changes = row.expected.by.keys() - {ALWAYS}
    return sorted({*VERSIONS, *changes} if changes else BOTH_WAYS)


def cases() -> list[tuple[Row, Version]]:
    return [(row, version) for row in ROWS for version in versions(row)]


@pytest.mark.parametrize(("row", "version"), [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in cases()])
async def test_the_simulated_kubelet_keeps(row: Row, version: Version) -> None:
    with short_directory() as root:
        async with simulated(root, version) as kubelet:
            assert await row.probe(kubelet) == row.expects(version)
