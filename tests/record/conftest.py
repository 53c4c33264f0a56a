"""Facts told to a recorder over the validating log."""

from __future__ import annotations

import pytest

from reactor.record.recorder import Recorder
from tests.record.world import Teller


@pytest.fixture
def teller(recorder: Recorder) -> Teller:
    return Teller(recorder)
