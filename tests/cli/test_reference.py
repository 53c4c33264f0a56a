"""docs/options.md is what the code reads."""

from __future__ import annotations

from pathlib import Path

from reactor.cli.reference import PAGE, options_page
from reactor.config import OPTIONS

ROOT = Path(__file__).parents[2]


def test_the_page_of_options_is_that_of_the_code() -> None:
    assert (ROOT / PAGE).read_text() == options_page(), "write it anew: make schema"


def test_every_flag_and_variable_is_on_the_page() -> None:
    """CFG-35"""
    page = options_page()
    names = [name for option in OPTIONS for name in (*option.flags, *option.variables, option.path)]
    assert [
        name for name in (*names, "--kubelet-root", "NODE_NAME", "DP_DISABLE_HEALTHCHECKS") if name not in page
    ] == []
