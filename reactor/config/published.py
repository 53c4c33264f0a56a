"""What is published of the config file, made from the types that it is read by: the JSON schema, and a list of keys."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
from msgspec import Struct, inspect

from reactor.config.read import doc_of_type, expected, unwrapped
from reactor.config.schema import File
from reactor.config.unserved import MESSAGES


def json_schema() -> str:
    """The text of ``config/config.schema.json``.

    It knows types, choices and doc lines; the rules that span values, null and duplicate keys are left to ``check``.
    """
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(File)}
    return json.dumps(schema, indent=2) + "\n"


class Key(Struct, frozen=True, kw_only=True):
    """One key of the file, for a page that lists them."""

    path: str
    """[] stands for each item of a list."""
    expected: str
    default: str
    """As JSON; empty: there is none, or it is a section of its own."""
    doc: str
    unserved: str
    """Why it has no effect yet; empty: it acts."""


def keys() -> tuple[Key, ...]:
    """Every key in the order of the schema, sections before what is in them."""
    return tuple(_keys(inspect.type_info(File), ""))


def _keys(kind: inspect.Type, path: str) -> Iterator[Key]:
    for member in unwrapped(kind):
        if isinstance(member, inspect.ListType):
            yield from _keys(member.item_type, f"{path}[]")
        elif isinstance(member, inspect.StructType):
            for field in member.fields:
                at = f"{path}.{field.encode_name}" if path else field.encode_name
                section = any(isinstance(one, inspect.StructType) for one in unwrapped(field.type))
                yield Key(
                    path=at,
                    expected="a section" if section else _in_words(field.type),
                    default="" if section or field.required else _default(field),
                    doc=doc_of_type(field.type),
                    unserved=MESSAGES.get(at, ""),
                )
                yield from _keys(field.type, at)


def _in_words(kind: inspect.Type) -> str:
    words = expected(kind)
    item = next((one.item_type for one in unwrapped(kind) if isinstance(one, inspect.ListType)), None)
    if words != "a list" or item is None or any(isinstance(one, inspect.StructType) for one in unwrapped(item)):
        return words
    return f"a list, each {expected(item)}"


def _default(field: inspect.Field) -> str:
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return "" if value is None else msgspec.json.encode(value).decode()
