"""What a line of the event log is: a closed set of struct classes, one for each event name.

A class gives the fields that its event adds; the envelope (``v ts level event seq run cause node``) is put around it
when it is encoded. The catalogue of classes is the schema: nothing can be logged that is not declared.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

VERSION = 1
SHOWN = 8
"""A list in a line shows this many entries; ``count`` says how many there are."""


class Level(StrEnum):
    DEBUG = "debug"
    """Steps; outside the promise."""
    INFO = "info"
    """The world changed, or the agent did."""
    WARNING = "warning"
    """Degraded; the agent goes on trying."""
    ERROR = "error"
    """Needs a person."""

    @property
    def rank(self) -> int:
        return tuple(Level).index(self)


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of all lines."""

    subject: ClassVar[tuple[str, ...]] = ("gpu", "resource", "handler", "source")
    """Fields that say about what it is: storm limits count for each combination of them."""
    burst: ClassVar[int] = 4
    """So many lines of one subject in a minute are shown whole."""

    level: Level = Level.INFO
    synthetic: bool = False
    """A person injected what this tells of."""
    faults: tuple[str, ...] = ()
    """Faults of the agent that began or ended with this, named as in status and metrics."""
    msg: str
    """One sentence for people; not part of the promise."""

    @property
    def event(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def about(self) -> tuple[str, ...]:
        """Values of the subject fields."""
        return tuple(str(getattr(self, name, "") or "") for name in self.subject)
