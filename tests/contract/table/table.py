"""The whole table."""

from __future__ import annotations

from tests.contract.table import admission, lists, register
from tests.contract.table.row import Row

MODULES = (register, lists, admission)

ROWS = tuple(each for module in MODULES for each in vars(module).values() if isinstance(each, Row))
