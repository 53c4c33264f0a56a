"""The language of ``gpu-reactor simulate``: a text of one step a line -> steps, or every fault with its line.

A step says what happens to the simulated node, or what the kubelet must then be seen to have. The words are listed in
``docs/simulate.md``; the built-in story (``story.txt``) is such a text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reactor.simulate import steps as do
from reactor.simulate.nvml import products

DEFAULT_NODE = "8xH100"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_EVENT = re.compile(r"[a-z]+\.[a-z]+")
_LONGEST = 3600.0


class ScriptError(Exception):
    """Everything that is wrong with a script, as (line, what is wrong and what to write)."""

    def __init__(self, problems: Sequence[tuple[int, str]]) -> None:
        super().__init__("; ".join(f"line {line}: {problem}" for line, problem in problems))
        self.problems = tuple(problems)


class _Wrong(Exception):
    """What is wrong with the line at hand."""


def parse(text: str) -> do.Script:
    """Read a script; ScriptError has every fault of it."""
    return _Parser(iter(enumerate(text.splitlines(), start=1))).parse()


@dataclass(slots=True)
class _Parser:
    lines: Iterator[tuple[int, str]]
    node: str = DEFAULT_NODE
    steps: list[do.Step] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    pods: set[str] = field(default_factory=set)
    """Pods that are there after the steps so far."""
    kubelet_up: bool = True

    def parse(self) -> do.Script:
        for number, line in self.lines:
            stripped = line.strip()
            if not stripped or stripped.startswith("#"):
                continue
            word, _, rest = stripped.partition(" ")
            try:
                self._take(number, stripped, word, rest.strip())
            except _Wrong as wrong:
                self.problems.append((number, str(wrong)))
        if not self.steps and not self.problems:
            self.problems.append((1, "the script has no step"))
        if self.problems:
            raise ScriptError(self.problems)
        return do.Script(self.node, tuple(self.steps))

    def _take(self, number: int, text: str, word: str, rest: str) -> None:
        if word == "node":
            self._set_node(rest)
            return
        read = _WORDS.get(word)
        if read is None:
            raise _Wrong(f"{word!r} is no step; there are {', '.join(WORDS)}")
        self.steps.append(do.Step(number, text, read(self, rest)))

    def _set_node(self, rest: str) -> None:
        if self.steps:
            raise _Wrong("node comes before every other step")
        try:
            found = products.parse(rest)
        except ValueError as exc:
            raise _Wrong(str(exc)) from exc
        if not found:
            raise _Wrong("write which cards the node has: node 8xH100")
        self.node = rest

    def say(self, rest: str) -> do.Say:
        if not rest:
            raise _Wrong("write what to say: say TEXT")
        return do.Say(rest)

    def config(self, rest: str) -> do.WriteConfig:
        """The lines after ``<<WORD``, up to the line that is WORD."""
        end = rest.removeprefix("<<")
        if end == rest or not end or " " in end:
            raise _Wrong("write config <<END, then the text of the config, then a line that is END")
        text: list[str] = []
        for _, line in self.lines:
            if line.strip() == end:
                return do.WriteConfig("".join(text))
            text.append(f"{line}\n")
        raise _Wrong(f"the config begins here and never ends: write a line that is {end}")

    def pod(self, rest: str) -> do.RunPod:
        name, *limits = _some(rest, "pod NAME RESOURCE=N", least=2)
        _match(_NAME, name, "the name of a pod")
        if name in self.pods:
            raise _Wrong(f"pod {name} is there already: delete it first, or choose another name")
        self.pods.add(name)
        return do.RunPod(name, _limits(limits))

    def delete(self, rest: str) -> do.DeletePod:
        (name,) = _some(rest, "delete NAME", least=1, most=1)
        self._known(name)
        self.pods.discard(name)
        return do.DeletePod(name)

    def _known(self, name: str) -> str:
        if name not in self.pods:
            raise _Wrong(f"there is no pod {name} at this point")
        return name

    def xid(self, rest: str) -> do.Xid:
        card, code = _some(rest, "xid CARD CODE", least=2, most=2)
        return do.Xid(self._card(card), _whole(code, "an XID", least=1))

    def _card(self, text: str) -> int:
        count = len(products.parse(self.node))
        return _whole(text, f"a card of {self.node}", least=0, most=count - 1)

    def wait(self, rest: str) -> do.Wait:
        (seconds,) = _some(rest, "wait SECONDS", least=1, most=1)
        return do.Wait(_seconds(seconds))

    def show(self, rest: str) -> do.Show:
        if rest:
            raise _Wrong("show stands alone")
        return do.Show()

    def kubelet(self, rest: str) -> do.Kubelet:
        verb, *down = _some(rest, "kubelet restart [SECONDS], kubelet stop, kubelet start", least=1, most=2)
        if verb not in ("restart", "stop", "start") or (down and verb != "restart"):
            raise _Wrong("write kubelet restart [SECONDS], kubelet stop, or kubelet start")
        if self.kubelet_up is (verb == "start"):
            raise _Wrong(f"the kubelet is {'up' if self.kubelet_up else 'down'} at this point")
        self.kubelet_up = verb != "stop"
        return do.Kubelet(verb, _seconds(down[0]) if down else 0.0)

    def agent(self, rest: str) -> do.RestartAgent:
        if rest != "restart":
            raise _Wrong("write agent restart")
        return do.RestartAgent()

    def expect(self, rest: str) -> do.Expect:
        if rest.startswith("log "):
            return do.Expect(_logged(rest.removeprefix("log ").strip()))
        words = _some(rest, _EXPECT, least=2)
        within = do.PATIENCE
        if len(words) > 3 and words[-2] == "within":
            within, words = _seconds(words[-1]), words[:-2]
        return do.Expect(self._check(words), within)

    def _check(self, words: Sequence[str]) -> do.Check:
        match words:
            case "card", card, ("healthy" | "unhealthy" | "absent") as state:
                return do.CardIs(self._card(card), state)
            case "pod", name, ("running" | "rejected") as state:
                return do.PodIs(self._known(name), state)
            case (("card" | "pod" | "log"), *_):
                raise _Wrong(f"write {_EXPECT}")
            case resource, *counts:
                return _counts(resource, counts)
        raise _Wrong(f"write {_EXPECT}")


def _move(verb: str) -> Callable[[_Parser, str], do.Action]:
    def read(parser: _Parser, rest: str) -> do.Move:
        (card,) = _some(rest, f"{verb} CARD", least=1, most=1)
        return do.Move(verb, parser._card(card))

    return read


_Read = Callable[[_Parser, str], do.Action]
_WORDS: Mapping[str, _Read] = {
    "say": _Parser.say,
    "config": _Parser.config,
    "pod": _Parser.pod,
    "delete": _Parser.delete,
    "xid": _Parser.xid,
    "unplug": _move("unplug"),
    "plug": _move("plug"),
    "lose": _move("lose"),
    "find": _move("find"),
    "kubelet": _Parser.kubelet,
    "agent": _Parser.agent,
    "wait": _Parser.wait,
    "show": _Parser.show,
    "expect": _Parser.expect,
}

WORDS = tuple(sorted((*_WORDS, "node")))
"""Every word that a line can begin with."""

_EXPECT = (
    "expect RESOURCE healthy=N unhealthy=N, expect card CARD healthy|unhealthy|absent, "
    "expect pod NAME running|rejected (each with within SECONDS, if need be), or expect log EVENT TEXT"
)


def full_name(resource: str) -> str:
    """A name without a domain is one of NVIDIA's: ``gpu`` is ``nvidia.com/gpu``."""
    return resource if "/" in resource else f"nvidia.com/{resource}"


def _some(rest: str, form: str, *, least: int, most: int | None = None) -> list[str]:
    words = rest.split()
    if len(words) < least or (most is not None and len(words) > most):
        raise _Wrong(f"write {form}")
    return words


def _match(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise _Wrong(f"{text!r} is not {what}")
    return text


def _limits(words: Sequence[str]) -> Mapping[str, int]:
    limits = [_limit(word) for word in words]
    if len(dict(limits)) < len(limits):
        raise _Wrong("a resource is asked for twice")
    return dict(limits)


def _limit(word: str) -> tuple[str, int]:
    resource, equals, count = word.partition("=")
    if not equals:
        raise _Wrong(f"{word!r} asks for nothing: write RESOURCE=N, such as gpu=2")
    return full_name(_match(_RESOURCE, resource, "a resource")), _whole(count, "a number of devices", least=1)


def _counts(resource: str, words: Sequence[str]) -> do.Counts:
    found: dict[str, int] = {}
    for word in words:
        health, equals, count = word.partition("=")
        if not equals or health not in ("healthy", "unhealthy") or health in found:
            raise _Wrong(f"{word!r} is not healthy=N or unhealthy=N, once each")
        found[health] = _whole(count, "a number of ids", least=0)
    name = full_name(_match(_RESOURCE, resource, "a resource"))
    return do.Counts(name, found.get("healthy"), found.get("unhealthy"))


def _logged(rest: str) -> do.Logged:
    event, _, text = rest.partition(" ")
    return do.Logged(_match(_EVENT, event, "the name of a log event, such as xid.reported"), text.strip())


def _whole(text: str, what: str, *, least: int, most: int | None = None) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
    if number < least or (most is not None and number > most):
        raise _Wrong(
            f"{text!r} is not {what}: write a number " + (f"from {least} on" if most is None else f"{least} to {most}")
        )
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST:
        raise _Wrong(f"{text!r} is not a number of seconds up to {_LONGEST:.0f}")
    return seconds
