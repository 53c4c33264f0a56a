"""The two kinds of failure that a facade raises; handlers and sources tell them apart, nothing else matters to them."""

from __future__ import annotations


class Transient(Exception):
    """It may go well when tried again."""


class Refused(Exception):
    """Bad input or impossible: trying again without a change of the input is of no use."""
