"""A line for people: time, level, event, the sentence, and the cause; four colours, no library."""

from __future__ import annotations

from collections.abc import Mapping

_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31"}
_LETTERS = {"debug": "D", "info": "I", "warning": "W", "error": "E"}
_DIM = "2"


def wants_colour(environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Colour is for terminals, and for nobody who set NO_COLOR to something."""
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def render(line: Mapping[str, object], *, colour: bool = False) -> str:
    """One line of text without its newline; what is missing in ``line`` is left out."""
    level = str(line.get("level", ""))
    event = str(line.get("event", ""))
    clock = str(line.get("ts", ""))[11:23]
    seq, cause = line.get("seq"), line.get("cause")
    origin = f"#{seq}" + (f" <- #{cause}" if cause is not None else "")
    mark = " [synthetic]" if line.get("synthetic") else ""

    def paint(code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour and text else text

    tone = _COLOURS.get(level, "0")
    return " ".join(
        (
            paint(_DIM, clock),
            paint(tone, _LETTERS.get(level, "?")),
            paint(tone, f"{event:<22}"),
            _printable(str(line.get("msg", ""))) + mark,
            paint(_DIM, f"({origin})"),
        )
    )


def _printable(text: str) -> str:
    """Nothing that a library or a pod's name brought in may drive the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
