"""The whole table."""

from __future__ import annotations

from tests.contract.table import (
    admission,
    books,
    choice,
    crash,
    directory,
    lists,
    reboot,
    register,
    restart,
    rollout,
    topology,
    watcher,
    wire,
)
from tests.contract.table.row import Row

MODULES = (
    register,
    wire,
    watcher,
    lists,
    admission,
    choice,
    rollout,
    books,
    topology,
    directory,
    restart,
    reboot,
    crash,
)

ROWS = tuple(each for module in MODULES for each in vars(module).values() if isinstance(each, Row))
