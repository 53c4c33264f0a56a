"""What every test may use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

import pytest

from reactor.record.line import Level
from reactor.record.recorder import Recorder
from tests.loglines import LogLines


@pytest.fixture
def log() -> LogLines:
    """A sink that validates every line against the published schema: give it to every recorder."""
    return LogLines()


@pytest.fixture
def recorder(log: LogLines) -> Recorder:
    """The real recorder over ``log``, debug lines included."""
    return Recorder(log, node="node-1", run="test", threshold=Level.DEBUG)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "root(why): needs root; left out, and named in one line, for other users")


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root") is not None:
            item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out = [report for report in terminalreporter.getreports("skipped") if "needs root" in str(report.longrepr)]
    if left_out:
        terminalreporter.write_line(f"left out, for they need root: {len(left_out)} tests (run make test as root)")
    if shutil.which("promtool") is None:
        terminalreporter.write_line("left out: promtool's look at the metrics (it is not here; .ci/run fetches it)")
