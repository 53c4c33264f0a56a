"""The written pages as data: fenced blocks with what their fence says, and links.

A ``console`` block is a shell script that a reader can paste; ``exit=N`` after the word is the status it ends with, and
a ``text`` block right behind it has lines that its output contains. A ``yaml`` block is a config.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<fence>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: Path
    line: int
    fence: tuple[str, ...]
    text: str

    @property
    def kind(self) -> str:
        return self.fence[0] if self.fence else ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> tuple[Block, ...]:
    source = page.read_text()
    return tuple(
        Block(
            page=page,
            line=source.count("\n", 0, found.start()) + 1,
            fence=tuple(found["fence"].split()),
            text=dedent(found["text"]),
        )
        for found in _BLOCK.finditer(source)
    )


def links(page: Path) -> tuple[str, ...]:
    """Targets outside of blocks; those of the web are left out, a test has no network."""
    prose = _BLOCK.sub("", page.read_text())
    return tuple(target for target in _LINK.findall(prose) if "://" not in target)


def anchors(page: Path) -> frozenset[str]:
    """The fragments that headlines of a page can be linked by."""
    headlines = re.findall(r"^#+ +(.+)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headlines)
