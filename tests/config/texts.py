"""Short ways to say what a text is read as."""

from __future__ import annotations

from reactor.config import Accepted, Rejected, parse
from reactor.model.ids import ResourceName

GPU = ResourceName("nvidia.com/gpu")
UUID = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


def accepted(text: str | bytes) -> Accepted:
    found = parse(text.encode() if isinstance(text, str) else text, path="c.yaml")
    assert isinstance(found, Accepted), found
    return found


def rejected(text: str | bytes) -> list[str]:
    found = parse(text.encode() if isinstance(text, str) else text, path="c.yaml")
    assert isinstance(found, Rejected), found
    return [problem.render("c.yaml") for problem in found.problems]


def one_problem(text: str | bytes) -> str:
    found = rejected(text)
    assert len(found) == 1, found
    return found[0]


def slicing(entries: str) -> str:
    return f"sharing: {{timeSlicing: {{resources: [{entries}]}}}}\n"
