"""The whole table."""

from __future__ import annotations

from tests.contract.table import admission, books, crash, lists, register, restart, topology
from tests.contract.table.row import Row

MODULES = (register, lists, admission, books, topology, restart, crash)

ROWS = tuple(each for module in MODULES for each in vars(module).values() if isinstance(each, Row))
