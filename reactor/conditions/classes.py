"""What an XID means: the table "Ours" of spec/pains.md 1a, and the policy that overrides it.

The environment goes before the config, a number before a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from reactor.model.condition import FaultClass, Policy, XidClass
from reactor.model.config import Health
from reactor.model.value import replace

# ---------------------------------------------------------------- the table


def _codes(text: str) -> frozenset[int]:
    codes: set[int] = set()
    for part in text.split():
        low, _, high = part.partition("-")
        codes.update(range(int(low), int(high or low) + 1))
    return frozenset(codes)


TABLE: Final[Mapping[XidClass, frozenset[int]]] = MappingProxyType(
    {
        XidClass.APPLICATION: _codes(
            "8 11 13 25 31 32 39-41 45 60 68-72 75-78 80 82-86 88 89 94 96-105 126-135 139",
        ),
        XidClass.IGNORE: _codes("37 38 43 44 63 66 67 92 93 106 107 121 137 141 152-154 157 160-172"),
        XidClass.RESET: _codes("46 48 62 64 74 95 109 110 119 120 136 140 143-150 155 156 158"),
        XidClass.RESTART: _codes("79 151"),
        XidClass.HARDWARE: _codes("54 142"),
    }
)
"""Every code that is in no row is unknown (HLT-32)."""

_CLASS_OF = {code: xid_class for xid_class, codes in TABLE.items() for code in codes}

FAULTS = {
    XidClass.RESET: FaultClass.RESET,
    XidClass.RESTART: FaultClass.RESTART,
    XidClass.HARDWARE: FaultClass.HARDWARE,
    XidClass.UNKNOWN: FaultClass.UNKNOWN,
}
"""Classes that make a GPU Unhealthy."""


# ---------------------------------------------------------------- policy


def policy_from_environment(pairs: Iterable[tuple[str, str]]) -> Policy | tuple[str, ...]:
    """Read DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS; or what is wrong with them, a text for each fault.

    Upstream ignores a malformed token and takes 0 for "all"; here both are refused, and so are numbers beside ``all``,
    which they would add nothing to (CFG-37).
    """
    values = dict(pairs)
    disabled, disable_all, problems = _tokens("DP_DISABLE_HEALTHCHECKS", values)
    enabled, enable_all, more = _tokens("DP_ENABLE_HEALTHCHECKS", values)
    if problems or more:
        return (*problems, *more)
    return Policy(disabled=disabled, enabled=enabled, disable_all=disable_all, enable_all=enable_all)


def _tokens(name: str, values: Mapping[str, str]) -> tuple[frozenset[int], bool, tuple[str, ...]]:
    """(XIDs, whether all are meant, problems) of one variable; empty tokens are nothing, as upstream has it."""
    tokens = [token for part in values.get(name, "").lower().split(",") if (token := part.strip())]
    everything = any(token in ("all", "xids") for token in tokens)
    numbers: set[int] = set()
    problems: list[str] = []
    for token in tokens:
        if token in ("all", "xids"):
            continue
        # Ten digits are beyond any code, and int() refuses text of some thousand.
        if not (token.isascii() and token.isdecimal() and len(token) <= 10 and int(token)):
            problems.append(f"{name}: {token[:40]!r} is no XID: write all, or numbers from 1 on with commas between")
        else:
            numbers.add(int(token))
    if everything and numbers and not problems:
        listed = ", ".join(map(str, sorted(numbers)))
        problems.append(f"{name}: all stands for every XID, so {listed} beside it says nothing: write one or the other")
    return frozenset(numbers), everything, tuple(problems)


def in_force(environment: Policy, health: Health) -> Policy:
    """The environment's word, and under it what the config says."""
    return replace(
        environment,
        by_number={**dict(health.xids), **environment.by_number},
        by_class={**dict(health.classes), **environment.by_class},
        quiet_unknown=health.quiet_unknown,
        quiet_unreachable=health.quiet_unreachable,
        relapse_limit=health.relapse_limit,
        relapse_window=health.relapse_window,
    )


def classify(policy: Policy, xid: int) -> XidClass:
    """The class in force: enabled goes before disabled, as upstream has it, and both before the other overrides.

    Enabled means Unhealthy and says nothing of what lifts it: that is as given, else as in the table, else unknown.
    """
    own = _CLASS_OF.get(xid, XidClass.UNKNOWN)
    given = policy.by_number.get(xid) or policy.by_class.get(own, own)
    if policy.enable_all or xid in policy.enabled:
        return next((one for one in (given, own) if one in FAULTS), XidClass.UNKNOWN)
    if policy.disable_all or xid in policy.disabled:
        return XidClass.IGNORE
    return given
