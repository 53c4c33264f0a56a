"""The node of the process tests, for adversities that need a real process."""

from __future__ import annotations

from tests.process.conftest import node, root

__all__ = ["node", "root"]
