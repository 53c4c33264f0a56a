"""A tree of values read along the types of the schema: every fault is told, with its place and what was meant.

What is left is a plain structure without the faulty parts, so that the rules that span several values (``parse.py``)
can still be checked on the rest; it is used for nothing else once there is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, Literal, TypeAlias

from msgspec import inspect

from reactor.config.document import ListNode, MapNode, Node, ScalarNode, Value
from reactor.config.problems import Mark, Problems, join, nearest, quote
from reactor.config.schema import File, Rule
from reactor.model import config as model

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"


class _Bad(Enum):
    BAD = "bad"


BAD: Final = _Bad.BAD
"""A value that is wrong; the problem is noted."""
Result: TypeAlias = "Plain | Literal[_Bad.BAD]"

_BOOLISH = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_FILE = inspect.type_info(File)


class Reader:
    """One reading of one text. ``marks`` and ``kept`` tell later checks where each value stands."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.marks: dict[str, Mark] = {}
        self.kept: dict[str, list[int]] = {}
        """By path of a list: the indexes, in the text, of the items that were good."""

    def file(self, node: MapNode) -> Plain:
        found = self._read(node, _FILE, "")
        return {} if found is BAD else found

    def value(self, node: Node, key: str, said: str) -> Result:
        """Read one value as that of ``key`` (such as flags.migStrategy); problems have ``said`` for their path."""
        return self._read(node, type_at(key), said)

    def _read(self, node: Node, kind: inspect.Type, path: str) -> Result:
        kind, rule = _unwrap(kind)
        self.marks[path] = node.mark
        member = _member(node, kind)
        if member is None or (_is_null(node) and rule is not None and not rule.null):
            words = f"expected {_expected(kind, rule)}; got {describe(node)}{_hint(node, kind)}"
            self.problems.add(node.mark, path, words, peer=_peer(node, kind, rule))
            return BAD
        if member is not kind:
            before = len(self.problems)
            value = self._read(node, member, path)
            # Of a value with a fault inside, what is left says nothing about the whole.
            return value if len(self.problems) > before else self._checked(value, rule, node, path)
        match node:
            case MapNode() if isinstance(kind, inspect.StructType):
                return self._struct(node, kind, path)
            case ListNode() if isinstance(kind, inspect.ListType):
                return self._checked(self._list(node, kind, path), rule, node, path)
            case ScalarNode():
                return self._checked(self._scalar(node, kind, path), rule, node, path)
            case _:
                raise AssertionError(f"{path}: {kind} takes no {type(node).__name__}")

    def _checked(self, value: Result, rule: Rule | None, node: Node, path: str) -> Result:
        if rule is None or value is BAD:
            return value
        wrong = rule.check(value)
        if wrong is None:
            return value
        self.problems.add(node.mark, path, wrong, peer=_peer(node, inspect.AnyType(), rule))
        return BAD

    def _scalar(self, node: ScalarNode, kind: inspect.Type, path: str) -> Result:
        if isinstance(kind, inspect.EnumType):
            choices = _choices(kind)
            if node.value not in choices:
                words = f"{quote(str(node.value))} is not one of {', '.join(choices)}"
                self.problems.add(node.mark, path, words + _meant(str(node.value), choices))
                return BAD
        return node.value

    def _list(self, node: ListNode, kind: inspect.ListType, path: str) -> Result:
        items: list[Plain] = []
        kept = self.kept.setdefault(path, [])
        for index, item in enumerate(node.items):
            before = len(self.problems)
            value = self._read(item, kind.item_type, f"{path}[{index}]")
            # An item with any fault is left out: half of it, filled up with defaults, would seem to clash with others.
            if value is not BAD and len(self.problems) == before:
                items.append(value)
                kept.append(index)
        # All items wrong says nothing about the list: it must not be told off for being empty as well.
        return BAD if node.items and not items else items

    def _struct(self, node: MapNode, kind: inspect.StructType, path: str) -> Result:
        fields = {field.encode_name: field for field in kind.fields}
        found: dict[str, Plain] = {}
        wrong: set[str] = set()
        for key, entry in node.entries.items():
            field = fields.get(key)
            if field is None:
                wrong.update(self._unknown(key, entry.mark, fields, path))
            elif _is_null(entry.value) and not field.required and _nullable(field):
                continue  # as good as left out
            else:
                value = self._read(entry.value, field.type, join(path, key))
                if value is BAD:
                    wrong.add(key)
                else:
                    found[key] = value
        missing = [name for name, field in fields.items() if field.required and name not in found]
        for name in missing:
            if name not in wrong:
                self.problems.add(node.mark, path, f"{name} is missing")
        return BAD if missing else found

    def _unknown(self, key: str, mark: Mark, fields: dict[str, inspect.Field], path: str) -> set[str]:
        """Note an unknown key; gives the key that was meant, if it is one of this mapping."""
        folded = {_fold(name): name for name in fields}
        here = folded.get(_fold(key))
        elsewhere = None if here else _PLACES.get(_fold(key))
        here = here or (None if elsewhere else nearest(key, fields))
        if here is not None:
            meant = f", did you mean {here!r}?"
        elif elsewhere is not None:
            meant = f" here, it belongs at {elsewhere}"
        else:
            meant = f"; known here: {', '.join(fields)}"
        # The device plugin reads keys in any case, but for those inside timeSlicing and mps.
        folds = here is not None and key.casefold() == here.casefold() and not path.startswith("sharing.")
        peer = f"takes it for {here}" if folds else "ignores it"
        self.problems.add(mark, join(path, key), f"unknown key {quote(key)}{meant}", peer=peer)
        return {here} if here else set()


def type_at(key: str) -> inspect.Type:
    """The type of a key of the schema, with its rule and its doc line."""
    kind: inspect.Type = _FILE
    for name in key.split("."):
        inner = _unwrap(kind)[0]
        if not isinstance(inner, inspect.StructType):
            raise KeyError(key)
        kind = next(field.type for field in inner.fields if field.encode_name == name)
    return kind


def doc_of(key: str) -> str:
    """The doc line of a key of the schema."""
    return doc_of_type(type_at(key))


def doc_of_type(kind: inspect.Type) -> str:
    """The doc line that stands with a key's type."""
    while isinstance(kind, inspect.Metadata):
        text = (kind.extra_json_schema or {}).get("description")
        if text:
            return str(text)
        kind = kind.type
    raise ValueError(f"{kind} has no doc line")


def expected(kind: inspect.Type) -> str:
    """What a value of this type must be, in words."""
    return _expected(*_unwrap(kind))


def unwrapped(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """The types that a value may be read as."""
    return tuple(_unwrap(member)[0] for member in _members(_unwrap(kind)[0]))


def freeze(value: Plain) -> model.Plain:
    """The same value, never to be changed."""
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    if isinstance(value, dict):
        return {key: freeze(item) for key, item in value.items()}
    return value


def _unwrap(kind: inspect.Type) -> tuple[inspect.Type, Rule | None]:
    rule = None
    while isinstance(kind, inspect.Metadata):
        found = (kind.extra or {}).get("rule")
        if isinstance(found, Rule):
            rule = found
        kind = kind.type
    return kind, rule


def _members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _member(node: Node, kind: inspect.Type) -> inspect.Type | None:
    """Which of the types that ``kind`` stands for this node is to be read as; None: it is of none of them."""
    return next((member for member in _members(kind) if _takes(_unwrap(member)[0], node)), None)


def _takes(kind: inspect.Type, node: Node) -> bool:
    match node:
        case MapNode():
            return isinstance(kind, inspect.StructType)
        case ListNode():
            return isinstance(kind, inspect.ListType)
        case ScalarNode(value=value):
            return _takes_scalar(kind, value)


def _takes_scalar(kind: inspect.Type, value: Value) -> bool:
    match value:
        case None:
            return isinstance(kind, inspect.NoneType)
        case bool():
            return isinstance(kind, inspect.BoolType)
        case int():
            return isinstance(kind, inspect.IntType)
        case float():
            return False
        case str() if isinstance(kind, inspect.LiteralType):
            return value in kind.values
        case str():
            return isinstance(kind, inspect.StrType | inspect.EnumType)


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _nullable(field: inspect.Field) -> bool:
    rule = _unwrap(field.type)[1]
    return rule is None or rule.null


def _choices(kind: inspect.EnumType) -> list[str]:
    return [str(member.value) for member in kind.cls]


def _meant(word: str, choices: list[str]) -> str:
    close = nearest(word, choices)
    return f"; did you mean {close!r}?" if close else ""


def _expected(kind: inspect.Type, rule: Rule | None) -> str:
    if rule is not None:
        return rule.expected
    words = []
    for member in _members(kind):
        inner, inner_rule = _unwrap(member)
        match inner:
            case inspect.NoneType():
                continue
            case _ if inner_rule is not None:
                words.append(inner_rule.expected)
            case inspect.EnumType():
                words.append("one of " + ", ".join(_choices(inner)))
            case inspect.StructType(fields=fields):
                words.append("a mapping of " + ", ".join(field.encode_name for field in fields))
            case _:
                words.append(_WORDS.get(type(inner), "another type"))
    return " or ".join(words)


_WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.StrType: "text",
    inspect.ListType: "a list",
}


def describe(node: Node) -> str:
    """What stands in the text, with its type, for a message."""
    match node:
        case MapNode():
            return "a mapping"
        case ListNode():
            return "a list"
        case ScalarNode(value=None):
            return "null"
        case ScalarNode(value=bool() as value):
            return f"the boolean {str(value).lower()}"
        case ScalarNode(value=str() as value):
            return f"the text {quote(value)}"
        case ScalarNode(value=value):
            return f"the number {value}"


def _peer(node: Node, kind: inspect.Type, rule: Rule | None) -> str:
    """What the device plugin, which reads YAML 1.1, makes of a value that is refused here."""
    if isinstance(node, ListNode) and not node.items and rule is not None:
        return rule.peer([])
    if not isinstance(node, ScalarNode):
        return ""
    meant = _BOOLISH.get(str(node.value).casefold())
    if isinstance(kind, inspect.BoolType) and meant is not None and str(node.value).casefold() != meant:
        return f"takes it for {meant}, unless it stands in quotes"
    return "" if rule is None else rule.peer(node.value)


def _hint(node: Node, kind: inspect.Type) -> str:
    if not isinstance(node, ScalarNode) or node.value is None:
        return ""
    kinds = [type(_unwrap(member)[0]) for member in _members(kind)]
    word = str(node.value)
    if inspect.BoolType in kinds and word.casefold() in _BOOLISH:
        return f": write {_BOOLISH[word.casefold()]}, without quotes"
    if inspect.IntType in kinds and isinstance(node.value, str) and _NUMBER.fullmatch(word):
        return ": write it without quotes"
    return ""


def _fold(key: str) -> str:
    """A key as it may be meant: in any case, or as the flag or the variable of the same name has it."""
    return key.casefold().replace("-", "").replace("_", "")


def _places(kind: inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    """Every key of the schema, case folded, with where it belongs."""
    for member in _members(_unwrap(kind)[0]):
        inner = _unwrap(member)[0]
        if isinstance(inner, inspect.ListType):
            yield from _places(inner.item_type, f"{path}[]")
        elif isinstance(inner, inspect.StructType):
            for field in inner.fields:
                place = join(path, field.encode_name)
                yield _fold(field.encode_name), place
                yield from _places(field.type, place)


_PLACES = dict(reversed(list(_places(_FILE, ""))))
"""The first place counts: timeSlicing before mps."""
