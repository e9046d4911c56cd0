"""Names and prose of code, templates and tests use plain English and standard terms."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# This file quotes the words. The demo's agents keep their names: fingerprints of recorded versions cover them. The
# other files are being rewritten.
OUTSIDE = re.compile(
    r"/migrations/|test_words\.py$|^durableagents/demo/|^durableagents/contrib/(accounts|tracing)/"
    r"|^runs/console/(run_views|tables/statuses)\.py$|^runs/queries/sentences\.py$"
    r"|^approvals/queues/views\.py$|^durableagents/contrib/calendars/views\.py$"
)
ROOTS = ("approvals", "durableagents", "ledger", "runs", "tests")

# Wrong as a part of any name; each has a standard term: contradicted, child run, continuation, authentic, registered.
PARTS = {"belied", "births", "estate", "genuine", "heir", "heirs", "plugged", "whoever", "anew"}
PHRASES = ("hand_in", "take_late")
# Vague as the whole name of a class, a function of a module, a parameter or a variable. A field or method is read
# together with its object.
VAGUE = set(
    "ahead along asked brief doubt doubts ears folded kin looks offered said shown sight stand standing stands telling"
    " told".split()
)
KEPT = {
    ("durableagents/contrib/encryption/api.py", "said"),
    ("durableagents/identity/demo_accounts.py", "_shown"),
    ("ledger/templatetags/console.py", "said"),  # filters of many templates
    ("runs/templatetags/steering.py", "told"),
    ("runs/console/sockets.py", "ears"),
    ("runs/engine/continuation.py", "Said"),  # agents import it
    ("runs/engine/runtime.py", "told"),
    ("runs/engine/undoing/visit.py", "Stands"),  # its name is part of recorded questions
    ("runs/models/run.py", "Telling"),  # a table's model
}
LIMIT = re.compile(r"_?(MOST|LONGEST)$")
PROSE = re.compile(r"\b(whoever|whomever|anew|for ever|so as to|that there (?:are|is))\b(?!\s*=)", re.IGNORECASE)
OPENING = re.compile(r"(What|Who|Whom|Whose|Whether|Where|Which|How|Until|When|Why)\b")
MAX_OPENINGS = 0.03


@cache
def sources() -> dict[str, tuple[str, ast.Module]]:
    """Return text and syntax tree of each Python file, by its path."""
    found = {}
    for folder in ROOTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not OUTSIDE.search(name):
                found[name] = (text := path.read_text(), ast.parse(text))
    return found


def parts_of(name: str) -> set[str]:
    """Return the words of a name in snake_case or CamelCase."""
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def definitions(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Yield line and name of each definition, and whether it is read without an object."""
    members = {id(each) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
    fields = {id(part) for node in ast.walk(tree) if id(node) in members for part in targets_of(node)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name, id(node) not in members
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg, True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id, id(node) not in fields


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Return the targets of an assignment; empty for other nodes."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def prose_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment and string."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def test_names_use_the_standard_terms() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path, (_, tree) in sources().items()
        for line, name, _ in definitions(tree)
        if (parts_of(name) & PARTS and name != "ToolReadAnew")  # the kind of an event is in old journals
        or any(phrase in name for phrase in PHRASES)
        or LIMIT.fullmatch(name)
    ]
    assert wrong == []


def test_names_say_what_they_hold() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path, (_, tree) in sources().items()
        if not path.startswith("tests/")
        for line, name, is_alone in definitions(tree)
        if is_alone and name.strip("_").lower() in VAGUE and (path, name) not in KEPT
    ]
    assert wrong == []


def test_prose_avoids_private_phrases() -> None:
    wrong = [
        f"{path}:{line}: {text[:80]}"
        for path, (source, _) in sources().items()
        for line, text in prose_in(source)
        if PROSE.search(text)
    ]
    for path in [*(ROOT / "templates").rglob("*"), *(ROOT / "durableagents").rglob("templates/**/*")]:
        if path.is_file() and not OUTSIDE.search(path.relative_to(ROOT).as_posix()):
            wrong += [str(path) for found in [PROSE.search(path.read_text())] if found]
    assert wrong == []


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    texts = [
        text
        for _, tree in sources().values()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]
    opened = [text for text in texts if OPENING.match(text)]
    assert len(opened) < MAX_OPENINGS * len(texts), opened
