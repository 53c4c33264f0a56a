"""Runs the built-in story beside the other tests: it takes half a minute, and most of that is waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.simulate.runs import Run

_RUN = pytest.StashKey[Run]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "story: looks at the one run of the built-in story; comes last")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("story") is not None)


def pytest_runtestloop(session: pytest.Session) -> None:
    wanted = any(item.get_closest_marker("story") for item in session.items)
    if wanted and not session.config.option.collectonly:
        session.config.stash[_RUN] = Run()


@pytest.fixture(scope="session")
def story(pytestconfig: pytest.Config) -> Run:
    """The built-in story, begun when the tests began; at its end."""
    run = pytestconfig.stash[_RUN]
    run.finish(within=60)
    return run


def pytest_sessionfinish(session: pytest.Session) -> None:
    run = session.config.stash.get(_RUN, None)
    if run is not None:
        run.close()


@pytest.fixture
def simulate() -> Iterator[type[Run]]:
    """Starts ``gpu-reactor simulate`` with a script; what still runs at the end of the test is killed."""
    with contextlib.ExitStack() as stack:

        class Tidied(Run):
            def __init__(self, script: str) -> None:
                super().__init__(script)
                stack.callback(self.close)

        yield Tidied
