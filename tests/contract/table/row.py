"""A row: a probe, what it is about, and what it must find on each version.

A probe is a coroutine over a kubelet under test; it returns what it saw as plain values. What must be seen is data: one
value for all versions, or by the version from which it holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from reactor.simulate.kubelet.version import Version
from tests.contract.table.under_test import Kubelet

Probe = Callable[[Kubelet], Awaitable[object]]

VERSIONS = (Version(1, 29), Version(1, 34), Version(1, 37))
"""Those that run as real kubelets."""
ALWAYS = Version(1, 0)


@dataclass(frozen=True)
class Since:
    """What holds, by the version from which on it does."""

    by: Mapping[Version, object]

    def at(self, version: Version) -> object:
        return self.by[max(each for each in self.by if each <= version)]


def since(**by: object) -> Since:
    """``since(v1_29=1, v1_37=2)``"""
    return Since({Version.parse(name.removeprefix("v").replace("_", ".")): value for name, value in by.items()})


@dataclass(frozen=True)
class Row:
    probe: Probe
    section: str
    """Of spec/kubelet.md."""
    expected: Since
    alone: bool
    """It disturbs the kubelet for everybody: nothing else runs meanwhile."""
    long: bool
    """It takes minutes."""
    window: bool
    """Something is not to happen for as long as ``quiet`` of the kubelet: looked at once more where there is time."""

    @property
    def name(self) -> str:
        return self.probe.__name__

    @property
    def says(self) -> str:
        return " ".join((self.probe.__doc__ or "").split())

    def expects(self, version: Version) -> object:
        return self.expected.at(version)


def row(
    section: str, expected: object, *, alone: bool = False, long: bool = False, window: bool = False
) -> Callable[[Probe], Row]:
    """Make a row of a probe. ``expected``: a value, or ``since(...)`` where versions differ."""

    def make(probe: Probe) -> Row:
        held = expected if isinstance(expected, Since) else Since({ALWAYS: expected})
        return Row(probe, section, held, alone, long, window)

    return make
