"""The whole table."""

from __future__ import annotations

from tests.contract.table import admission, books, crash, lists, register, restart, rollout, topology, watcher, wire
from tests.contract.table.row import Row

MODULES = (register, wire, watcher, lists, admission, rollout, books, topology, restart, crash)

ROWS = tuple(each for module in MODULES for each in vars(module).values() if isinstance(each, Row))
