"""How many examples: few in the everyday run, many with GPU_REACTOR_THOROUGH=1 (minutes)."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, settings

THOROUGH = os.environ.get("GPU_REACTOR_THOROUGH") == "1"


def examples(fast: int, thorough: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Settings of a property: the everyday run is the same each time, so that it fails for a change alone."""
    return settings(
        max_examples=thorough if THOROUGH else fast,
        deadline=None,
        derandomize=not THOROUGH,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
