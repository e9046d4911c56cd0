"""The table of invariants names existing tests."""

from __future__ import annotations

import ast
import re

from tests.conftest import CHECKOUT

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _rows() -> list[str]:
    page = (CHECKOUT / "docs" / "explanation" / "step-protocol.md").read_text()
    return [line for line in page.splitlines() if re.match(r"\| \d+ \|", line)]


def test_every_test_that_the_index_names_exists() -> None:
    named = {found for row in _rows() for found in _NAMED.findall(row)}
    there = {
        (path, each.name)
        for path in {path for path, _ in named}
        for each in ast.walk(ast.parse((CHECKOUT / path).read_text()))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert named - there == set()


def test_no_promise_is_without_a_test() -> None:
    rows = _rows()
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 17))
    assert [row for row in rows if not _NAMED.search(row)] == []
