"""How an event watch that fails goes on. Apart from ``watch``, so that the agent does not load NVML to know it."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
FAILED_AFTER = 3
"""Failures in a row from which on the GPUs count as unwatched."""
