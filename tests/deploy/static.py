"""What lies in deploy/static, as data, and patches merged into it as kubectl does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "deploy" / "static"
Object = dict[str, Any]
"""A Kubernetes object as JSON."""


def manifests() -> list[Object]:
    """ServiceAccount, ConfigMap and DaemonSet, as the file has them."""
    found: list[Object] = list(yaml.safe_load_all((STATIC / "gpu-reactor.yaml").read_text()))
    return found


def patch(name: str) -> Object:
    """One of the patches that lie beside it."""
    found: Object = yaml.safe_load((STATIC / f"{name}.yaml").read_text())
    return found


def merged(base: Object, change: Object) -> Object:
    """A strategic merge as kubectl patch makes it: lists of named things by name, other lists are replaced."""
    return base | {key: _merged(base.get(key), value) for key, value in change.items()}


def _merged(base: object, change: object) -> object:
    if isinstance(base, dict) and isinstance(change, dict):
        return merged(base, change)
    if isinstance(base, list) and isinstance(change, list) and all(isinstance(c, dict) and "name" in c for c in change):
        known = {each["name"]: each for each in base}
        return list((known | {each["name"]: _merged(known.get(each["name"]), each) for each in change}).values())
    return change
