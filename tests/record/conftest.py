"""A recorder over the validating log."""

from __future__ import annotations

import pytest

from reactor.record import Level, Recorder
from tests.loglines import LogLines
from tests.record.world import Teller


@pytest.fixture
def teller(log: LogLines) -> Teller:
    return Teller(Recorder(log, node="node-1", threshold=Level.DEBUG))
