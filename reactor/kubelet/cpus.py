"""Whether the kubelet gives containers CPUs of their own: from the file in which it keeps whose they are."""

from __future__ import annotations

import json
from pathlib import Path

_FILE = "cpu_manager_state"


def pins_cpus(kubelet_root: Path) -> bool:
    """Whether the CPU manager's policy is static. False where that cannot be read: nothing is known then."""
    try:
        state = json.loads((kubelet_root / _FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(state, dict) and state.get("policyName") == "static"
