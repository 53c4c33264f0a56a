"""A sink for the recorder that takes no line which the published schema does not know.

Whatever a test's recorder emits goes through it (fixture ``log``), so that every line of every test is validated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jsonschema_rs

from reactor.record.encode import LIMIT
from reactor.record.render import render

SCHEMA = Path(__file__).parent.parent / "config" / "events.schema.json"


@cache
def _validator() -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))


def validate(line: bytes) -> dict[str, object]:
    """One raw line, newline included, as the object that it is."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1, "one object a line"
    assert len(line) <= LIMIT, "container runtimes split long lines"
    told: dict[str, object] = json.loads(line)
    fault = next(_validator().iter_errors(told), None)
    assert fault is None, f"{fault}\n{line.decode()}"
    return told


class LogLines:
    """Lines that were emitted, validated and in their order. A sink: ``Recorder(log, node="node-1")``."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def __call__(self, line: bytes) -> None:
        self.lines.append(validate(line))

    def __iter__(self) -> Iterator[dict[str, object]]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def events(self) -> list[str]:
        return [str(line["event"]) for line in self.lines]

    def of(self, event: str) -> list[dict[str, object]]:
        """The lines of one event name."""
        return [line for line in self.lines if line["event"] == event]

    def text(self) -> str:
        """As a person sees them; pytest shows it where an assertion fails."""
        return "\n".join(render(line) for line in self.lines)

    def __repr__(self) -> str:
        return f"<log of {len(self.lines)} lines>\n{self.text()}"
