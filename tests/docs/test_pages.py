"""What README.md and docs/ tell a reader to do works as written: commands are run, configs checked, links followed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reactor.cli import main
from tests.docs.pages import PAGES, ROOT, Block, anchors, blocks, links

EVERY = tuple(block for page in PAGES for block in blocks(page))
TOURS = tuple(page for page in PAGES if any(block.kind == "console" for block in blocks(page)))
CONFIGS = tuple(block for block in EVERY if block.kind == "yaml")


def run(block: Block, home: Path) -> tuple[int, str]:
    """Run it in ``home``, which is its /tmp as well, so that it leaves nothing on the machine."""
    script = block.text.replace("/tmp/", f"{home}/")
    done = subprocess.run(["bash", "-euc", script], cwd=home, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("page", TOURS, ids=lambda page: page.name)
def test_a_tour_works_as_written(page: Path, tmp_path: Path) -> None:
    command = tmp_path / ".venv/bin/gpu-reactor"
    command.parent.mkdir(parents=True)
    command.symlink_to(Path(sys.executable).parent / "gpu-reactor")
    found = blocks(page)
    for block, following in zip(found, (*found[1:], None), strict=True):
        if block.kind != "console":
            continue
        status, output = run(block, tmp_path)
        expected = next((int(word[5:]) for word in block.fence if word.startswith("exit=")), 0)
        assert status == expected, f"{block.place}: {output}"
        if following is not None and following.kind == "text":
            for line in following.text.replace("/tmp/", f"{tmp_path}/").splitlines():
                assert line in output, following.place


@pytest.mark.parametrize("block", CONFIGS, ids=lambda block: block.place)
def test_a_config_that_is_shown_is_accepted(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(block.text)
    assert main(["check", str(file)]) == 0


def test_the_readme_shows_a_tour_and_a_config() -> None:
    kinds = [block.kind for block in blocks(ROOT / "README.md")]
    assert kinds.count("console") == 2
    assert "yaml" in kinds


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        name, _, fragment = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z0-9-]+)`|^make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))
    assert {one or other for one, other in named} <= targets
