"""Words a person types -> the fact that a source would have published, marked synthetic (HLT-29).

The fact takes the same way through the agent as a real one: nothing here changes state or health by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from reactor.events import (
    DevicesChanged,
    EccReported,
    Fact,
    FaultCleared,
    GpuLost,
    RecoveryActionChanged,
    XidReported,
)
from reactor.model.condition import Placement
from reactor.model.errors import Refused
from reactor.model.gpu import RecoveryAction
from reactor.model.ids import GpuUuid
from reactor.state import State

Options = dict[str, str]


def parse_fact(words: Sequence[str], state: State) -> Fact:
    """Read ``xid=79 gpu=0 [gi=1 ci=0]``, ``ecc gpu=1``, ``gpu-lost gpu=2``, ``clear gpu=2 reason=...``,
    ``recovery gpu=1 action=reset`` or ``rescan``. A GPU is an index, a UUID or a PCI address. Refused tells what is
    wrong.
    """
    if not words:
        raise Refused(f"nothing to inject; {_choices('the first word is', _KINDS)}")
    kind, equals, value = words[0].partition("=")
    if kind not in _KINDS:
        raise Refused(_unknown("fact", kind, _KINDS))
    build, allowed = _KINDS[kind]
    options = _options(kind, words[1:], allowed)
    if (kind == "xid") != bool(equals):
        raise Refused("write xid=NUMBER, such as xid=79" if kind == "xid" else f"{kind} takes no value: {words[0]!r}")
    if equals:
        options["xid"] = value
    return build(options, state)


def _options(kind: str, words: Sequence[str], allowed: Sequence[str]) -> Options:
    options: Options = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in allowed:
            raise Refused(_unknown(f"option of {kind}", name, allowed))
        if not equals or not value:
            raise Refused(f"{name} needs a value: {name}=...")
        if name in options:
            raise Refused(f"{name} is given twice")
        options[name] = value
    return options


def _unknown(what: str, word: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(word, known, n=1)
    hint = f"did you mean {near[0]}?" if near else _choices("there is", known)
    return f"unknown {what} {word!r}; {hint}"


def _choices(lead: str, known: Sequence[str] | Mapping[str, object]) -> str:
    return f"{lead} {', '.join(known)}" if known else f"{lead} none"


def _take(options: Options, name: str, example: str) -> str:
    if name not in options:
        raise Refused(f"{name}=... is missing, such as {name}={example}")
    return options.pop(name)


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:12]) > most:
        raise Refused(f"{name}={text} is not a number from 0 to {most}")
    return int(text)


def _gpu(options: Options, state: State) -> GpuUuid:
    """By index, UUID or PCI address; a GPU that is gone but still has a fault answers to the latter two."""
    text = _take(options, "gpu", "0")
    wanted = text.lower()
    for gpu in state.gpus:
        if wanted in (str(gpu.index), gpu.uuid.lower(), gpu.pci.lower()):
            return gpu.uuid
    for uuid in state.conditions:
        if wanted in (uuid.lower(), state.pci.get(uuid, "").lower()):
            return uuid
    known = ", ".join(f"{gpu.index} ({gpu.uuid}, {gpu.pci})" for gpu in state.gpus) or "no GPU at all"
    raise Refused(f"no GPU {text!r}; this node shows {known}")


def _placement(options: Options) -> Placement:
    gi, ci = (_number(name, options.pop(name), 63) if name in options else None for name in ("gi", "ci"))
    if ci is not None and gi is None:
        raise Refused("ci=... needs gi=...: a compute instance sits in a GPU instance")
    return Placement(gi=gi, ci=ci)


def _xid(options: Options, state: State) -> Fact:
    xid = _number("xid", options.pop("xid"), 0xFFFF)
    return XidReported(gpu=_gpu(options, state), placement=_placement(options), xid=xid, synthetic=True)


def _ecc(options: Options, state: State) -> Fact:
    return EccReported(gpu=_gpu(options, state), placement=_placement(options), synthetic=True)


def _lost(options: Options, state: State) -> Fact:
    return GpuLost(gpu=_gpu(options, state), error=options.pop("error", "injected: GPU lost"), synthetic=True)


def _clear(options: Options, state: State) -> Fact:
    gpu = _gpu(options, state)
    return FaultCleared(gpu=gpu, reason=_take(options, "reason", "replaced"), synthetic=True)


def _recovery(options: Options, state: State) -> Fact:
    gpu = _gpu(options, state)
    action = _take(options, "action", "reset")
    if action not in tuple(RecoveryAction):
        raise Refused(_unknown("action", action, tuple(RecoveryAction)))
    return RecoveryActionChanged(gpu=gpu, action=RecoveryAction(action), synthetic=True)


def _rescan(options: Options, state: State) -> Fact:
    return DevicesChanged(what="a person asked for a scan", synthetic=True)


_KINDS: Mapping[str, tuple[Callable[[Options, State], Fact], tuple[str, ...]]] = {
    "xid": (_xid, ("gpu", "gi", "ci")),
    "ecc": (_ecc, ("gpu", "gi", "ci")),
    "gpu-lost": (_lost, ("gpu", "error")),
    "clear": (_clear, ("gpu", "reason")),
    "recovery": (_recovery, ("gpu", "action")),
    "rescan": (_rescan, ()),
}
