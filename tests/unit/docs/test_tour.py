"""The reading tour in CONTRIBUTING.md names definitions that are in use, and is short."""

from __future__ import annotations

import ast
import re

from tests.conftest import CHECKOUT

MAX_LINES = 1600
_ITEM = re.compile(r"^\d+\. \[[^]]+\]\(([\w/.]+)\)((?:, `[\w.]+`)*(?:,\n +`[\w.]+`(?:, `[\w.]+`)*)*)", re.M)


def _python(text: str, name: str) -> str:
    """Return the source of a function, class or method. Raises KeyError without one."""
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = {x.name: x for x in ast.iter_child_nodes(node) if isinstance(x, kinds)}[part]
    return ast.get_source_segment(text, node) or ""


def _sql(text: str, name: str) -> str:
    """Return the source of an SQL function. Raises IndexError without one."""
    return re.findall(rf"^CREATE OR REPLACE FUNCTION {name}\(.*?^(?:END )?\$\$", text, re.M | re.S)[0]


def test_it_names_what_is_in_use_and_is_read_in_an_hour() -> None:
    product = {
        str(path.relative_to(CHECKOUT)): path.read_text()
        for app in ("approvals", "durableagents", "ledger", "runs")
        for pattern in ("*.py", "*.sql")
        for path in (CHECKOUT / app).rglob(pattern)
    }
    tour = [(m[1], re.findall(r"`([\w.]+)`", m[2])) for m in _ITEM.finditer((CHECKOUT / "CONTRIBUTING.md").read_text())]
    assert len(tour) > 5
    lines = 0
    for path, names in tour:
        text = product[path]
        parts = {name: (_sql if path.endswith(".sql") else _python)(text, name) for name in names} or {"": text}
        lines += sum(part.count("\n") + 1 for part in parts.values())
        for name in names:
            named = re.compile(rf"\b{name.rpartition('.')[2]}\b")
            defined = sum(len(re.findall(rf"FUNCTION {name}\(", other)) for other in product.values())
            assert not path.endswith(".sql") or defined == 1, f"{name} is defined {defined} times"
            uses = sum(len(named.findall(other)) for other in product.values())
            assert uses > 1, f"nothing uses {name} of {path}"
    assert lines <= MAX_LINES, lines
