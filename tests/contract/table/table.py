"""The whole table."""

from __future__ import annotations

from tests.contract.table import admission, crash, lists, register, restart
from tests.contract.table.row import Row

MODULES = (register, lists, admission, restart, crash)

ROWS = tuple(each for module in MODULES for each in vars(module).values() if isinstance(each, Row))
