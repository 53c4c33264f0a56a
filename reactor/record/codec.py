"""Frozen values of the domain to plain ones (what JSON has) and back, whole: for the journal.

A dataclass or struct is an object that names its class under ``$``, so that unions need no guessing; mappings are lists
of pairs, for their keys may be values; sets are sorted lists. A field that a record lacks has its default, so that
journals of older versions stay readable.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TypeGuard

from msgspec import Struct

NAME = "$"


class Unreadable(Exception):
    """A record is not of the shape that its class has now."""


def to_plain(value: object) -> object:
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float():
            return value
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case Mapping():
            return [[to_plain(key), to_plain(item)] for key, item in value.items()]
        case frozenset() | set():
            return sorted((to_plain(item) for item in value), key=repr)
        case tuple() | list():
            return [to_plain(item) for item in value]
    kind: type = type(value)
    if not is_record(kind):
        raise TypeError(f"no plain form of {kind.__name__}")
    named: dict[str, object] = {NAME: kind.__name__}
    return named | {name: to_plain(getattr(value, name)) for name in _names(kind)}


def is_record(kind: object) -> TypeGuard[type]:
    """Whether it is a class of named fields: a dataclass, or a struct where one is hashed often."""
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Struct))


@cache
def _names(kind: type) -> tuple[str, ...]:
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    return tuple(part.name for part in fields(kind) if part.init) if is_dataclass(kind) else ()


def from_plain(plain: object, kind: object) -> object:
    """The value of type ``kind`` that ``plain`` came from."""
    try:
        return _decoder(kind)(plain)
    except (KeyError, TypeError, ValueError) as exc:
        raise Unreadable(f"{type(exc).__name__}: {exc}") from exc


Decoder = Callable[[object], object]


@cache
def _decoder(kind: object) -> Decoder:
    if isinstance(kind, typing.NewType):
        return _decoder(kind.__supertype__)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is frozenset:
        item = _decoder(arguments[0])
        return lambda plain: frozenset(map(item, _items(plain)))
    if origin is not None and issubclass(origin, Mapping):
        key, value = map(_decoder, arguments)
        return lambda plain: {key(pair[0]): value(pair[1]) for pair in map(_pair, _items(plain))}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if is_record(kind):
        return _record(kind)
    if kind is float:
        return lambda plain: float(plain) if isinstance(plain, int) else plain
    return lambda plain: plain


def _record(kind: type) -> Decoder:
    make: Callable[..., object] = kind
    every = typing.get_type_hints(kind)
    hints = {name: every[name] for name in _names(kind)}

    def decode(plain: object) -> object:
        if not isinstance(plain, dict) or plain.get(NAME) != kind.__name__:
            raise ValueError(f"this is no {kind.__name__}: {plain!r:.80}")
        return make(**{name: _decoder(hint)(plain[name]) for name, hint in hints.items() if name in plain})

    return decode


def _union(arguments: Iterable[object]) -> Decoder:
    classes = {each.__name__: each for each in arguments if is_record(each)}
    others = [each for each in arguments if each is not type(None) and each not in classes.values()]

    def decode(plain: object) -> object:
        if plain is None:
            return None
        if isinstance(plain, dict):
            return _decoder(classes[plain[NAME]])(plain)
        return _decoder(others[0])(plain) if others else plain

    return decode


def _tuple(arguments: tuple[object, ...]) -> Decoder:
    if len(arguments) == 2 and arguments[1] is ...:
        item = _decoder(arguments[0])
        return lambda plain: tuple(map(item, _items(plain)))
    decoders = [_decoder(each) for each in arguments]
    return lambda plain: tuple(decode(item) for decode, item in zip(decoders, _items(plain), strict=True))


def _items(plain: object) -> list[object]:
    if not isinstance(plain, list):
        raise ValueError(f"this is no list: {plain!r:.80}")
    return plain


def _pair(plain: object) -> tuple[object, object]:
    key, value = _items(plain)
    return key, value
