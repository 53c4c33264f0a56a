"""What is published of the log is what the code can say."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from reactor.record import catalogue, served
from reactor.record.encode import Stamp, encode
from reactor.record.examples import EXAMPLES
from reactor.record.line import Line
from reactor.record.schema import PAGE, SCHEMA, classes, page, schema_text
from tests.loglines import validate

ROOT = Path(__file__).parent.parent.parent
STAMP = Stamp(seq=7, cause=6, ts="2026-11-30T09:12:44.031207Z", run="r1", node="node-1")


@pytest.mark.parametrize(("path", "text"), [(SCHEMA, schema_text()), (PAGE, page())], ids=["schema", "page"])
def test_published_files_are_those_that_the_line_classes_make(path: Path, text: str) -> None:
    assert (ROOT / path).read_text() == text, "run: make schema"


def test_every_line_class_has_one_example() -> None:
    declared = {
        kind
        for module in (catalogue, served)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Line) and kind is not Line
    }
    assert sorted(kind.__name__ for kind in classes()) == sorted(kind.__name__ for kind in declared)


@pytest.mark.parametrize("example", [example for _, part in EXAMPLES for example in part], ids=lambda line: line.event)
def test_examples_keep_the_schema_and_the_manners_of_names(example: Line) -> None:
    told = validate(encode(example, STAMP))
    assert re.fullmatch(r"[a-z]+\.[a-z]+", example.event)
    assert list(told)[:8] == ["v", "ts", "level", "event", "seq", "run", "cause", "node"]
    assert inspect.getdoc(type(example)), "a line says what it means"


def test_same_field_has_the_same_type_in_every_line() -> None:
    types: dict[str, set[str]] = {}
    for kind in classes():
        for name, annotation in inspect.get_annotations(kind).items():
            types.setdefault(name, set()).add(str(annotation).removesuffix(" | None"))
    assert {name for name, kinds in types.items() if len(kinds) > 1} == set()


def test_schema_refuses_an_event_and_a_field_that_are_not_declared() -> None:
    line = encode(EXAMPLES[0][1][1], STAMP)
    for broken in (line.replace(b"agent.started", b"agent.exploded"), line.replace(b'"boot"', b'"boat"')):
        with pytest.raises(AssertionError):
            validate(broken)
