"""What is published in config/ is what the code reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from msgspec import inspect

from reactor.config import Accepted, json_schema, parse
from reactor.config.schema import File
from reactor.model.config import Config

PUBLISHED = Path(__file__).parents[2] / "config"
TEXTS = [PUBLISHED / "config.yaml", *sorted(PUBLISHED.glob("examples/*.yaml"))]


def test_the_published_schema_is_that_of_the_code() -> None:
    assert (PUBLISHED / "config.schema.json").read_text() == json_schema(), "write it anew: check --print-schema"


def test_the_default_config_is_the_config_of_an_empty_file() -> None:
    accepted = parse((PUBLISHED / "config.yaml").read_bytes(), path="config.yaml")
    assert isinstance(accepted, Accepted)
    assert accepted.config == Config()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_every_published_config_is_accepted_and_served_whole(path: Path) -> None:
    accepted = parse(path.read_bytes(), path=str(path))
    assert isinstance(accepted, Accepted)
    assert accepted.config.unserved == ()
    assert jsonschema_rs.validator_for(json.loads(json_schema())).is_valid(yaml.safe_load(path.read_text()))


def _fields(kind: inspect.Type, path: str = "") -> Iterator[tuple[str, inspect.Field]]:
    match kind:
        case inspect.Metadata(type=inner):
            yield from _fields(inner, path)
        case inspect.UnionType(types=types):
            for member in types:
                yield from _fields(member, path)
        case inspect.ListType(item_type=item):
            yield from _fields(item, path)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield f"{path}.{field.encode_name}", field
                yield from _fields(field.type, f"{path}.{field.encode_name}")


@pytest.mark.parametrize(("path", "field"), list(_fields(inspect.type_info(File))))
def test_every_key_has_a_doc_line_and_a_default(path: str, field: inspect.Field) -> None:
    assert isinstance(field.type, inspect.Metadata)
    assert (field.type.extra_json_schema or {}).get("description")
    assert field.required == (
        path.rsplit(".", 1)[1] in {"name", "pattern", "replicas", "resources"} and path != ".resources"
    )
