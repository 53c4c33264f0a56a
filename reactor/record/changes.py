"""The difference of two configs by key, spelt as the file spells keys. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from msgspec import Struct

from reactor.model.config import Config, Source
from reactor.model.value import replace
from reactor.record.catalogue import ConfigChange

_PLACES = {"gpus": "resources.gpus", "time_slicing": "sharing.timeSlicing", "mps": "sharing.mps"}
"""Fields of Config that do not stand at the top of the file."""

_NOTHING = object()


def config_changes(before: Config | None, after: Config) -> tuple[ConfigChange, ...]:
    """Every key that differs, with who says so now; against no config at all, against the defaults."""
    old = before or Config()
    return tuple(
        _sourced(change, after)
        for part in fields(Config)
        if part.compare
        for change in _differences(
            _PLACES.get(part.name, _camel(part.name)), getattr(old, part.name), getattr(after, part.name)
        )
    )


def _sourced(change: ConfigChange, config: Config) -> ConfigChange:
    """With the key's place in the file and the source of its value, where the config was read from a text."""
    head, bracket, rest = change.path.partition("[")
    section, key = head.split(".")[0], head.split(".")[-1].casefold()
    for setting in config.settings:
        parts = setting.path.split(".")
        if parts[0] == section and parts[-1].casefold() == key:
            source = " ".join(filter(None, (setting.source.value, setting.name)))
            return replace(change, path=f"{setting.path}{bracket}{rest}", source=source)
    if not config.settings:
        return change
    # What a section comes to is not always one key of it; and what it had and has no more is the default.
    inside = [setting.source.value for setting in config.settings if setting.path.split(".")[0] == section]
    return replace(change, source=next((one for one in inside if one != Source.DEFAULT), Source.DEFAULT.value))


def _differences(path: str, before: object, after: object) -> Iterator[ConfigChange]:
    if before == after:
        return
    if isinstance(before, Struct) and type(before) is type(after) and before.__struct_fields__:
        for name in before.__struct_fields__:
            yield from _differences(f"{path}.{_camel(name)}", getattr(before, name), getattr(after, name))
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
    if isinstance(value, Struct):
        told = " ".join(f"{_camel(name)}={_show(getattr(value, name))}" for name in value.__struct_fields__)
        return told or type(value).__name__
    if isinstance(value, tuple):
        return ", ".join(_show(item) for item in value)
    if isinstance(value, frozenset):
        return ", ".join(sorted(_show(item) for item in value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
