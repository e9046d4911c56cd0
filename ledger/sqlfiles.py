"""SQL that a migration brings: files that never change once shipped, and how a later one is taken back.

A change to a function is a new numbered file beside the old ones, with a migration of its own number, so that databases
that exist get it too. The newest file that declares a function says what it is. Taking such a migration back brings the
function's text from the file that declared it before.
"""

from __future__ import annotations

import re
from pathlib import Path

_DECLARED = re.compile(r"^CREATE OR REPLACE FUNCTION (\w+)\(.*?^(?:END )?\$\$;$", re.M | re.S)


def sql_file(migration: str, name: str) -> str:
    """The text of `sql/NAME` of the app that a migration's `__file__` belongs to."""
    return (Path(migration).resolve().parent.parent / "sql" / name).read_text(encoding="utf-8")


def functions(text: str) -> dict[str, str]:
    """What a file declares: each function's name, and the statement that makes it."""
    return {match.group(1): match.group(0) for match in _DECLARED.finditer(text)}


def as_before(migration: str, name: str, *wanted: str) -> str:
    """The statements that bring functions back as an older file of the same app has them. Raises KeyError for one that
    it hasn't."""
    known = functions(sql_file(migration, name))
    return "\n".join(known[function] for function in wanted)
