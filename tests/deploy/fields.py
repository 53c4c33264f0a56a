"""Whether a Kubernetes object has only fields that its kind has, with values of their types: by the client's models.

The API server would drop a misspelt field without a word, unless it is asked to be strict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from kubernetes_asyncio.client import models

_KINDS = {"v1": "V1", "apps/v1": "V1"}
_PLAIN = {"str": str, "int": int, "bool": bool, "object": object}


def faults(thing: dict[str, Any]) -> list[str]:
    """What is wrong with it, each with its path; empty: nothing."""
    return list(_faults(thing, _KINDS[thing["apiVersion"]] + thing["kind"], thing["kind"]))


def _faults(value: object, kind: str, path: str) -> Iterator[str]:
    if kind in _PLAIN:
        if not isinstance(value, _PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{path}: {value!r} is not of type {kind}"
    elif inner := re.fullmatch(r"list\[(.*)\]", kind):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is not a list"
            return
        for number, each in enumerate(value):
            yield from _faults(each, inner[1], f"{path}[{number}]")
    elif inner := re.fullmatch(r"dict\(str, (.*)\)", kind):
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is not a map"
            return
        for name, each in value.items():
            yield from _faults(each, inner[1], f"{path}.{name}")
    elif not isinstance(value, dict):
        yield f"{path}: {value!r} is not a section"
    else:
        known = _fields(kind)
        for name, each in value.items():
            if name not in known:
                yield f"{path}.{name}: {kind} has no such field"
            else:
                yield from _faults(each, known[name], f"{path}.{name}")


@cache
def _fields(kind: str) -> dict[str, str]:
    model = getattr(models, kind)
    return {model.attribute_map[name]: type_ for name, type_ in model.openapi_types.items()}
