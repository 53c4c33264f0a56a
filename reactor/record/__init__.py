"""The structured event log: (event, before, after) -> lines, JSON, one object a line, with a published schema.

``lines`` is pure and decides what is told; ``Storm`` keeps it short; ``Recorder`` puts the envelope around it and hands
bytes to a sink, such as ``LogWriter``. ``render`` shows a line to people. docs/events.md lists every line.
"""

from __future__ import annotations

from reactor.record.line import Level, Line
from reactor.record.recorder import LogHandler, Recorder
from reactor.record.render import render
from reactor.record.writer import LogWriter

__all__ = ["Level", "Line", "LogHandler", "LogWriter", "Recorder", "render"]
