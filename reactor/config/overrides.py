"""Texts of flags and variables -> settings that go before the file's, judged by the rules of the keys they stand for.

They are read once, at the start; every reading of the file then has them on top.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reactor.config.document import ListNode, Node, ScalarNode
from reactor.config.problems import Mark, Problems, quote
from reactor.config.read import BAD, Plain, Reader, freeze
from reactor.model.config import Setting, Source
from reactor.model.options import Given, Kind

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,15}|0[oO]?[0-7]{1,18}|0[bB][01]{1,60}|0|[1-9][0-9]{0,17})")
_PLACE = Mark(0, 0)


def read_overrides(given: Iterable[Given]) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """(settings, what is wrong with the others, a line for each fault)."""
    settings: list[Setting] = []
    problems = Problems()
    for one in given:
        said = f"the variable {one.name}" if one.source is Source.VARIABLE else one.name
        found = _read(one, said, Reader(problems))
        if found is not None:
            settings.append(found)
    return tuple(settings), tuple(f"{problem.path}: {problem.message}" for problem in problems.sorted())


def _read(given: Given, said: str, reader: Reader) -> Setting | None:
    """None: it is wrong, and noted, or it says nothing."""
    option = given.option
    texts = given.texts if option.kind in (Kind.LIST, Kind.NUMBERS) else given.texts[-1:]
    if not any(text.strip() for text in texts):
        if option.empty is None:
            reader.problems.add(_PLACE, said, "it is empty: write a value, or leave it out")
            return None
        if option.kind is Kind.NUMBERS:
            return None
        texts = (option.empty,)
    node = _node(option.kind, texts, said, reader.problems)
    value = BAD if node is None else reader.value(node, option.path, said)
    if value is BAD:
        return None
    return Setting(path=option.path, value=freeze(value), source=given.source, name=given.name)


def _node(kind: Kind, texts: tuple[str, ...], said: str, problems: Problems) -> Node | None:
    if kind is Kind.TEXT:
        return ScalarNode(_PLACE, texts[0])
    if kind is Kind.BOOL:
        word = texts[0]
        if word not in _TRUE | _FALSE:
            problems.add(_PLACE, said, f"expected true or false; got {quote(word)}")
            return None
        return ScalarNode(_PLACE, word in _TRUE)
    words = [word.strip() for text in texts for word in text.split(",")] if any(texts) else []
    if kind is Kind.LIST:
        return ListNode(_PLACE, [ScalarNode(_PLACE, word) for word in words])
    wrong = [word for word in words if not _NUMBER.fullmatch(word)]
    if wrong:
        problems.add(_PLACE, said, f"expected whole numbers with commas between; got {quote(wrong[0])}")
        return None
    return ListNode(_PLACE, [ScalarNode(_PLACE, _number(word)) for word in words])


def _number(word: str) -> int:
    """A leading zero is octal, as Go has it."""
    octal = re.fullmatch(r"([+-]?)0([0-7]+)", word)
    return int(octal[1] + octal[2], 8) if octal else int(word, 0)


def lay_over(written: Plain, overrides: Iterable[Setting]) -> Plain:
    """The file's values with the overrides in their places. ``written`` is left as it is."""
    merged = dict(written) if isinstance(written, dict) else {}
    for setting in overrides:
        *outer, last = setting.path.split(".")
        place = merged
        for key in outer:
            inside = place.get(key)
            fresh: dict[str, Plain] = dict(inside) if isinstance(inside, dict) else {}
            place[key] = fresh
            place = fresh
        place[last] = _thaw(setting.value)
    return merged


def _thaw(value: object) -> Plain:
    if isinstance(value, tuple):
        return [_thaw(item) for item in value]
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    raise TypeError(f"no flag says a {type(value).__name__}")
