"""The structured event log: (event, before, after) -> lines, JSON, one object a line, with a published schema.

``narrate.lines`` is pure and decides what is told; ``Storm`` keeps it short; ``Recorder`` puts the envelope around it
and hands bytes to a sink, such as ``LogWriter``. ``render`` shows a line to people. docs/events.md lists every line.
Importing this package costs nothing, because commands that only read a log do so.
"""
