"""Real nodes for tests. ``node``: one running node per version, shared, cleaned after each test that took it. A test
that also concerns a kubelet 1.29 says so with ``@EVERY_KUBELET`` (``versions.py``). ``make_node``: nodes of a test's
own. A test that fails leaves a bundle of everything and says where.

Fixtures are not async, so that a node outlives a test's event loop and a failure is known before a node is ended.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.e2e.__main__ import LANES
from tests.e2e.build import KUBELETS
from tests.e2e.bundle import keep
from tests.e2e.node import Node, need_all
from tests.e2e.versions import WHOLE
from tests.e2e.world import NotHere

HERE = Path(__file__).parent
_failed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=list(LANES), help="of the parts that python -m tests.e2e runs side by side")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lane = config.getoption("--lane")
    if lane:
        chosen = [item for item in items if _lane(item) == lane]
        config.hook.pytest_deselected(items=[item for item in items if _lane(item) != lane])
        items[:] = chosen


def _lane(item: pytest.Item) -> str:
    if item.path.parent == HERE / "contract":
        return "tables"
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return next((lane for lane, own in LANES.items() if any(each in own for each in values)), list(LANES)[-1])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: waits for minutes; only in make e2e-full")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Say once what this machine lacks, not in every test."""
    if session.config.option.collectonly or not any(HERE in item.path.parents for item in session.items):
        return
    try:
        need_all(KUBELETS)
    except NotHere as exc:
        pytest.exit(str(exc), returncode=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_failed] = True
        # At once: the summary comes at the end of a lane.
        item.config.get_terminal_writer().line(f"\n{report.capstdout}{report.longreprtext}")
    return report


class Shared:
    """The node of one version; a new one where the last could not be cleaned."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.node: Node | None = None

    def get(self) -> Node:
        if self.node is None:
            self.node = Node(self.version)
            try:
                trio.run(self.node.up)
            except BaseException as exc:
                self.fail(exc)
                raise
        return self.node

    def fail(self, exc: BaseException) -> None:
        """Keep a bundle and end the node, so that the next test gets a new one."""
        try:
            if self.node is not None:
                folder = _keep(self.node, f"node {self.version}")
                (folder / "why").write_text("".join(traceback.format_exception(exc)))
                exc.add_note(f"everything of the node: {folder}")
        finally:
            self.close()

    def close(self) -> None:
        if self.node is not None:
            self.node.close()
            self.node = None


@pytest.fixture(scope="session", params=WHOLE)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    shared = Shared(request.param)
    yield shared
    shared.close()


@pytest.fixture
def node(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Node]:
    node = shared.get()
    yield node
    _tell(request, node)
    try:
        trio.run(node.clean)
    except BaseException as exc:
        shared.fail(exc)
        raise
    if node.version == "1.29":
        shared.close()  # it remembers who ended until its next Allocate, and the agent of the next test believes it


@pytest.fixture
def make_node(request: pytest.FixtureRequest) -> Iterator[Callable[..., Node]]:
    """``make_node("1.34", verbosity=2)``, then ``await node.up()``."""
    made: list[Node] = []

    def make(version: str, **settings: object) -> Node:
        made.append(Node(version, **settings))
        return made[-1]

    yield make
    for node in made:
        _tell(request, node)
    try:
        for node in made:
            trio.run(node.end_agents)
    finally:
        for node in made:
            node.close()


def _tell(request: pytest.FixtureRequest, node: Node) -> None:
    """Keep a bundle if the test failed, and say where in its report."""
    if request.node.stash.get(_failed, False):
        folder = _keep(node, request.node.name)
        request.node.add_report_section("teardown", "bundle", f"everything of the node: {folder}")


def _keep(node: Node, name: str) -> Path:
    return trio.run(partial(keep, node, name, node.cache / "failed"))
