"""Alive: both loops turned lately. Looks at nothing outside this process: a hung GPU must not get the agent killed."""

from __future__ import annotations

from collections.abc import Mapping

LIMIT = 10.0


def why_dead(loops: Mapping[str, float], limit: float = LIMIT) -> tuple[str, ...]:
    """Why a probe shall fail; empty: alive. ``loops``: seconds since the last turn of each loop, by name."""
    return tuple(
        f"the {name} loop has not turned for {silent:.0f} s (limit {limit:.0f} s)"
        for name, silent in loops.items()
        if silent > limit
    )
