"""The rules of the house that no tool checks: size, docstrings, the one door between trio and asyncio, clean locks."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for path in (ROOT / "reactor").rglob("*.py") if "_pb" not in path.parts)
LOCKS = sorted(ROOT.glob("requirements*.lock"))


def imported(path: Path) -> set[str]:
    """Top-level names that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


def test_only_the_door_knows_both_trio_and_asyncio() -> None:
    both = {str(path.relative_to(ROOT)) for path in MODULES if {"trio", "asyncio"} <= imported(path)}
    assert both == {"reactor/aio.py"}


def test_no_module_mixes_trio_with_grpclib() -> None:
    assert [path.name for path in MODULES if {"trio", "grpclib"} <= imported(path)] == []


def test_modules_are_under_400_lines() -> None:
    long = {str(path.relative_to(ROOT)): lines for path in MODULES if (lines := path.read_text().count("\n")) > 400}
    assert long.keys() <= {"reactor/events.py"}, "only the catalogue of facts is one place whatever its length"


def test_modules_give_their_model_in_a_docstring() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in MODULES}
    assert [path for path, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_names_no_host_and_pins_everything_by_hash(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE), "no option, so none that names an index"
    pins = re.findall(r"^([a-z0-9][^\s;\\]*)", text, re.MULTILINE)
    assert pins
    assert all("==" in pin for pin in pins)
    entries = [entry for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE) if "==" in entry]
    assert all("--hash=sha256:" in entry for entry in entries)


def locked(lock: str) -> set[str]:
    return {line.split("==")[0] for line in (ROOT / lock).read_text().splitlines() if "==" in line}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=!~ ;\[]", requirement)[0].lower() for requirement in requirements}


def test_every_dependency_is_in_the_locks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = names(project["project"]["dependencies"])
    assert wanted - locked("requirements.lock") == set(), "run: make lock"
    wanted |= names(project["project"]["optional-dependencies"]["dev"]) | names(project["build-system"]["requires"])
    assert wanted - locked("requirements-dev.lock") == set(), "run: make lock"
