"""Config text -> a tree of plain values that know where they stand.

The tree is built from YAML events, never by PyYAML's constructors: scalars are resolved by our own YAML 1.2-like
rules (``yes``, ``010``, ``1:30``, ``1_000`` and dates are text), depth and size are bounded while building, and every
fault is a problem with its place. JSON is read as the YAML that it is.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Protocol, TypeAlias

import yaml
from msgspec import Struct, field

from reactor.config.problems import Mark, Problems, join

MAX_BYTES = 1 << 20
"""A ConfigMap cannot be larger. One byte more is enough for a reader to fetch."""
MAX_NODES = 20_000
"""Counted with aliases expanded, so that a few lines cannot stand for millions of values."""
MAX_DEPTH = 32

Value: TypeAlias = bool | int | float | str | None

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_STR_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class ScalarNode(Struct, frozen=True):
    mark: Mark
    value: Value


class ListNode(Struct, frozen=True):
    mark: Mark
    items: list[Node] = field(default_factory=list)


class Entry(Struct, frozen=True):
    mark: Mark
    """Of the key."""
    value: Node


class MapNode(Struct, frozen=True):
    mark: Mark
    entries: dict[str, Entry] = field(default_factory=dict)


Node: TypeAlias = "ScalarNode | ListNode | MapNode"


class _YamlMark(Protocol):
    line: int
    column: int


class _Unreadable(Exception):
    """The text cannot be followed any further; the problem is noted already."""


def load(data: bytes, problems: Problems) -> tuple[str, Node | None]:
    """The text and its tree. No tree: the text cannot be read, and a problem says why, or it holds no document."""
    try:
        text = _decode(data, problems)
    except _Unreadable:
        return "", None
    try:
        return text, _compose(text.removeprefix("\ufeff"), problems)
    except _Unreadable:
        return text, None
    except yaml.MarkedYAMLError as exc:
        mark = _mark(exc.problem_mark or exc.context_mark)
        words = " ".join(part for part in (exc.problem, exc.context) if part)
        hint = " (indent with spaces, not with a tab)" if _character(text, mark) == "\t" else ""
        problems.add(mark, "", f"not valid YAML: {words}{hint}")
    except yaml.YAMLError as exc:
        problems.add(Mark(0, 0), "", f"not valid YAML: {' '.join(str(exc).split())}")
    return text, None


def _character(text: str, mark: Mark) -> str:
    lines = text.splitlines()
    return lines[mark.line - 1][mark.column - 1 : mark.column] if 0 < mark.line <= len(lines) else ""


def _decode(data: bytes, problems: Problems) -> str:
    if len(data) > MAX_BYTES:
        problems.add(Mark(0, 0), "", f"the file is larger than the {MAX_BYTES} bytes that are read")
        raise _Unreadable
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problems.add(Mark(1, 1), "", "the file is UTF-16: save it as UTF-8", peer="reads it")
        raise _Unreadable
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode(errors="replace")
        problems.add(_mark_after(before), "", f"not UTF-8: byte 0x{data[exc.start]:02x}")
        raise _Unreadable from exc
    odd = _UNPRINTABLE.search(text.removeprefix("\ufeff"))
    if odd is not None:
        before = text.removeprefix("\ufeff")[: odd.start()]
        problems.add(_mark_after(before), "", f"the character U+{ord(odd[0]):04X} cannot stand in a config")
        raise _Unreadable
    return text


def _mark_after(text: str) -> Mark:
    lines = re.split(r"\r\n|\r|\n", text)
    return Mark(len(lines), len(lines[-1]) + 1)


class _Open(Struct, eq=False):
    """A list or mapping whose end has not come yet."""

    node: ListNode | MapNode
    anchor: str | None
    nodes_before: int
    key: tuple[str, Mark] | None = None
    """Of a mapping: the key whose value comes next."""
    key_bad: bool = False
    """The key came twice or is a merge key: its value is read and dropped."""

    @property
    def awaits_key(self) -> bool:
        return isinstance(self.node, MapNode) and self.key is None and not self.key_bad


class _Builder:
    """The tree under construction; iterative, so that depth is a number and not a stack overflow."""

    def __init__(self, problems: Problems) -> None:
        self.root: Node | None = None
        self._problems = problems
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._nodes = 0

    def scalar(self, event: yaml.ScalarEvent) -> None:
        mark = _mark(event.start_mark)
        self._count(1, mark)
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.node, MapNode) and top.awaits_key:
            self._key(top, top.node, event.value, mark)
            return
        node = ScalarNode(mark, self._resolve(event, mark))
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, 1)
        self._place(node)

    def open(self, node: ListNode | MapNode, event: yaml.CollectionStartEvent) -> None:
        self._count(1, node.mark)
        if len(self._stack) == MAX_DEPTH:
            self._fail(node.mark, f"nested more than {MAX_DEPTH} deep")
        if event.tag is not None:
            self._tagged(event.tag, node.mark)
        if self._stack and self._stack[-1].awaits_key:
            hint = "of a template, mount what it renders to"
            self._fail(node.mark, f"a key must be text, not a list or a mapping ({hint})")
        self._stack.append(_Open(node, event.anchor, self._nodes))

    def close(self) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.node, self._nodes - done.nodes_before + 1)
        self._place(done.node)

    def alias(self, event: yaml.AliasEvent) -> None:
        mark = _mark(event.start_mark)
        found = self._anchors.get(str(event.anchor))
        if found is None:  # also of an anchor that is still open: a value cannot contain itself
            self._fail(mark, f"*{event.anchor} stands for nothing: there is no complete &{event.anchor} before it")
            return
        node, size = found
        self._count(size, mark)
        if self._stack and self._stack[-1].awaits_key:
            self._fail(mark, "a key must be text, not an alias")
        self._place(node)

    def _key(self, top: _Open, node: MapNode, key: str, mark: Mark) -> None:
        first = node.entries.get(key)
        if first is not None:
            top.key_bad = True
            message = f"the key stands twice in one mapping, on lines {first.mark.line} and {mark.line}: keep one"
            self._problems.add(mark, join(self._path(), key), message, peer="the last one counts")
        elif key == "<<":
            top.key_bad = True
            message = "merge keys (<<) are not read: write the keys out"
            self._problems.add(mark, join(self._path(), key), message, peer="merges the keys")
        else:
            top.key = (key, mark)

    def _place(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        top = self._stack[-1]
        if isinstance(top.node, ListNode):
            top.node.items.append(node)
        elif top.key is not None:
            key, mark = top.key
            top.node.entries[key] = Entry(mark, node)
        top.key, top.key_bad = None, False

    def _resolve(self, event: yaml.ScalarEvent, mark: Mark) -> Value:
        if event.tag is not None and event.tag not in _STR_TAGS:
            self._tagged(event.tag, mark)
        plain = event.tag is None and event.implicit[0]
        return resolve(event.value) if plain else event.value

    def _tagged(self, tag: str, mark: Mark) -> None:
        self._problems.add(mark, self._path(), f"tags such as {tag} are not read: leave it out", peer="reads it")

    def _count(self, nodes: int, mark: Mark) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._fail(mark, f"more than {MAX_NODES} values (aliases counted for what they stand for)")

    def _fail(self, mark: Mark, message: str) -> None:
        self._problems.add(mark, self._path(), message)
        raise _Unreadable

    def _path(self) -> str:
        """Of the value that comes next."""
        path = ""
        for outer in self._stack:
            if isinstance(outer.node, ListNode):
                path += f"[{len(outer.node.items)}]"
            elif outer.key is not None:
                path = join(path, outer.key[0])
        return path


def resolve(text: str) -> Value:
    """What an unquoted scalar means: null, true or false, a whole number without leading zeros, a number, or text."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _compose(text: str, problems: Problems) -> Node | None:
    builder = _Builder(problems)
    documents = 0
    for event in _events(text):
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    message = "a second document begins here: only one is read"
                    problems.add(_mark(event.start_mark), "", message, peer="reads the first and ignores the rest")
                    raise _Unreadable
            case yaml.ScalarEvent():
                builder.scalar(event)
            case yaml.AliasEvent():
                builder.alias(event)
            case yaml.SequenceStartEvent():
                builder.open(ListNode(_mark(event.start_mark)), event)
            case yaml.MappingStartEvent():
                builder.open(MapNode(_mark(event.start_mark)), event)
            case yaml.CollectionEndEvent():
                builder.close()
            case _:
                pass
    return builder.root


def _events(text: str) -> Iterator[yaml.Event]:
    yield from yaml.parse(text, Loader=yaml.CSafeLoader)


def _mark(at: _YamlMark | None) -> Mark:
    return Mark(0, 0) if at is None else Mark(at.line + 1, at.column + 1)
