"""The page that tells of the table."""

from __future__ import annotations

from tests.contract.table.page import PAGE, page


def test_the_page_says_what_the_table_holds() -> None:
    assert PAGE.read_text() == page(), "run make schema"
