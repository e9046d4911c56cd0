"""Machine-checked rules about the source: short functions, documented modules, nothing left for later."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from datetime import date, time
from pathlib import Path

from django.apps import apps

from tests.conftest import CHECKOUT

MAX_FUNCTION_LINES = 60  # without the signature and the docstring
LONG_STRING = re.compile(r'"{3}.*?"{3}', re.S)


def sources() -> list[Path]:
    """Return every Python file under version control except generated migrations."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [CHECKOUT / name for name in listed.stdout.split()]
    return [path for path in paths if "migrations" not in path.parts and path.exists()]


def functions(statements: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions in these statements, skipping expressions, which hold none and are most of the tree."""
    for each in statements:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from functions(getattr(each, name, ()))


def may_hold_a_long_function(text: str) -> bool:
    """Return whether more than the allowed lines follow a `def` with a deeper indentation, strings aside.

    Parsing everything takes seconds. Where a quote or `#` comes before a long string, the file is parsed.
    """
    before = (text[text.rfind("\n", 0, at.start()) : at.start()] for at in LONG_STRING.finditer(text))
    if "'''" in text or any({*"#'\""} & {*each} for each in before):
        return True
    lines = LONG_STRING.sub(lambda at: "x" + "\n" * at[0].count("\n"), text).split("\n")
    open_: list[tuple[int, int]] = []  # indentation and line of the functions around a line
    for n, line in enumerate(lines):
        if not (bare := line.lstrip()) or bare[0] in "#)]}":
            continue
        indent = len(line) - len(bare)
        while open_ and indent <= open_[-1][0]:
            open_.pop()
        if open_ and n - open_[0][1] > MAX_FUNCTION_LINES:
            return True
        if bare.startswith(("def ", "async def ")):
            open_.append((indent, n))
    return False


def test_functions_have_at_most_sixty_lines() -> None:
    found = {}
    for path in sources():
        if not may_hold_a_long_function(text := path.read_text()):
            continue
        for node in functions(ast.parse(text).body):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > MAX_FUNCTION_LINES:
                found[f"{path.relative_to(CHECKOUT)}:{node.name}"] = lines
    assert found == {}


def test_every_module_of_the_product_has_a_docstring() -> None:
    needless = ("apps.py", "urls.py", "urls_api.py")  # their place or a command's `help` says it
    bare = [
        path
        for path in sources()
        if "tests" not in path.relative_to(CHECKOUT).parts
        and path.name not in needless
        and path.parent.name != "commands"
        and not re.match(r'(#.*\n|\s)*("""|$)', path.read_text())
    ]
    assert bare == []


def test_nothing_is_left_for_later() -> None:
    here, words = Path(__file__), r"\bTODO\b|\bFIXME\b|\bXXX\b|\bbreakpoint\(\)"
    assert [path for path in sources() if path != here and re.search(words, path.read_text())] == []


def test_no_field_has_a_fixed_date_or_time_as_default() -> None:
    """Django's check takes one near the present for a mistaken now(), and would warn for some seconds a day."""
    fields = (field for model in apps.get_models() for field in model._meta.get_fields() if hasattr(field, "default"))
    assert [str(field) for field in fields if isinstance(field.default, (date, time))] == []


def test_what_follows_a_commit_has_a_name_of_its_own() -> None:
    files = [
        path for room in ("runs", "approvals", "ledger", "durableagents") for path in (CHECKOUT / room).rglob("*.py")
    ]
    assert [path for path in files if re.search(r"on_commit\(\s*partial.*robust", path.read_text())] == []
