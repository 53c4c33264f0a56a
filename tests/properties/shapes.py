"""Configs that a person may write, as values: their text, and what they ask for, said without the agent's own plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

HOMES = ("nvidia.com/gpu", "nvidia.com/accel")
SHARED = "nvidia.com/gpu.shared"
RESOURCES = (*HOMES, SHARED)


@dataclass(frozen=True, slots=True)
class Shape:
    """One config: what GPUs are called, which of them are shared, by how many, under which name."""

    replicas: int = 0
    rename: bool = False
    home: str = HOMES[0]
    first: int | None = None
    """``devices: N``"""
    listed: tuple[int, ...] | None = None
    """``devices: [i, ...]``"""
    single: bool = False
    nothing: bool = False
    """A pattern that matches no product."""

    @property
    def text(self) -> str:
        lines = ["version: v1"]
        if self.nothing:
            lines.append("resources: {gpus: [{pattern: 'no such *', name: nvidia.com/gpu}]}")
        elif self.home != HOMES[0]:
            lines.append(f"resources: {{gpus: [{{pattern: '*', name: {self.home}}}]}}")
        if self.replicas:
            entry = f"name: {self.home}, replicas: {self.replicas}"
            entry += f", rename: {SHARED}" if self.rename else ""
            devices = self.first if self.first is not None else list(self.listed) if self.listed is not None else "all"
            lines.append("sharing:")
            lines.append("  timeSlicing:")
            lines.append(f"    failRequestsGreaterThanOne: {'true' if self.single else 'false'}")
            lines.append(f"    resources: [{{{entry}, devices: {devices}}}]")
        return "\n".join(lines) + "\n"

    def planned(self, present: Sequence[str]) -> dict[tuple[str, str], str]:
        """(resource, id) -> GPU, of the GPUs that are there, by index."""
        if self.nothing:
            return {}
        ids: dict[tuple[str, str], str] = {}
        for index, gpu in enumerate(present):
            chosen = index < self.first if self.first is not None else self.listed is None or index in self.listed
            if self.replicas and chosen:
                name = SHARED if self.rename else self.home
                ids |= {(name, f"{gpu}::{number}"): gpu for number in range(self.replicas)}
            else:
                ids[self.home, gpu] = gpu
        return ids


_selectors: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.fixed_dictionaries({}),
    st.builds(dict, first=st.integers(1, 3)),
    st.builds(dict, listed=st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True).map(tuple)),
)
_homes = st.sampled_from((HOMES[0], HOMES[0], HOMES[0], HOMES[1]))

shapes = st.one_of(
    st.just(Shape()),
    st.just(Shape()),
    st.builds(Shape, home=_homes),
    st.builds(
        lambda replicas, rename, home, single, selector: Shape(replicas, rename, home, single=single, **selector),
        st.sampled_from((2, 2, 3, 4)),
        st.booleans(),
        _homes,
        st.sampled_from((False, False, True)),
        _selectors,
    ),
    st.just(Shape(nothing=True)),
)

broken_texts = st.sampled_from(
    (
        "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: many}]}}\n",
        "version: v1\nflagz: {}\n",
        "version: v1\nversion: v1\n",
        "version: [\n",
        "version: v9\n",
    )
)
