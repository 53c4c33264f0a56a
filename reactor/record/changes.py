"""The difference of two configs by key, spelt as the file spells keys. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from reactor.model.config import Config
from reactor.record.catalogue import ConfigChange

_PLACES = {"gpus": "resources.gpus", "time_slicing": "sharing.timeSlicing", "mps": "sharing.mps"}
"""Fields of Config that do not stand at the top of the file."""

_NOTHING = object()


def config_changes(before: Config | None, after: Config) -> tuple[ConfigChange, ...]:
    """Every key that differs; against no config at all, against the defaults."""
    old = before or Config()
    return tuple(
        change
        for part in fields(Config)
        for change in _differences(
            _PLACES.get(part.name, _camel(part.name)), getattr(old, part.name), getattr(after, part.name)
        )
    )


def _differences(path: str, before: object, after: object) -> Iterator[ConfigChange]:
    if before == after:
        return
    if is_dataclass(before) and type(before) is type(after) and fields(before):
        for part in fields(before):
            yield from _differences(
                f"{path}.{_camel(part.name)}", getattr(before, part.name), getattr(after, part.name)
            )
    elif isinstance(before, tuple) and isinstance(after, tuple):
        for index in range(max(len(before), len(after))):
            yield from _differences(f"{path}[{index}]", _item(before, index), _item(after, index))
    else:
        yield ConfigChange(path=path, before=_show(before), after=_show(after))


def _item(values: tuple[object, ...], index: int) -> object:
    return values[index] if index < len(values) else _NOTHING


def _show(value: object) -> str:
    if value is _NOTHING or value is None:
        return ""
    if is_dataclass(value) and not isinstance(value, type):
        told = " ".join(f"{_camel(part.name)}={_show(getattr(value, part.name))}" for part in fields(value))
        return told or type(value).__name__
    if isinstance(value, tuple):
        return ", ".join(_show(item) for item in value)
    if isinstance(value, frozenset):
        return ", ".join(sorted(_show(item) for item in value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
