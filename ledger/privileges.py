"""Check that this process's database role can't rewrite the record: otherwise a bug or injected SQL could do so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.db import connection

# A member of the owner role may become the owner. A superuser is a member of every role, hence `rolsuper`.
_WHO = """
SELECT current_user, rolsuper, coalesce((
    SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_class c
    WHERE c.relname = ANY (%s) AND c.relnamespace = 'public'::regnamespace
      AND pg_has_role(current_user, c.relowner, 'MEMBER')
), '')
FROM pg_roles WHERE rolname = current_user
"""
_RECORD = [
    "ledger_event",
    "ledger_head",
    "ledger_ledgerentry",
    "ledger_overriderecord",
    "ledger_actrecord",
    "ledger_accountrecord",
    "ledger_register",
]
_FIX = (
    "give DATABASE_URL a role that owns nothing and keep the owner for migrate "
    "(docs/how-to/postgresql-and-pgbouncer.md)"
)


def problem_of(ask: Callable[[str, Sequence[Any]], tuple[str, bool, str]]) -> str | None:
    """Return what is wrong with a database role, in one line, or None.

    `ask` runs a statement under that role and returns one row.
    """
    role, is_superuser, owned = ask(_WHO, [_RECORD])
    if is_superuser:
        return f"the database role {role!r} is a superuser, which can rewrite the record: {_FIX}"
    return f"the database role {role!r} owns {owned}, so it can rewrite the record: {_FIX}" if owned else None


# Further checks that return a reason not to serve, like `refusal`. Apps above register theirs.
others: list[Callable[[], str | None]] = []


def refusal() -> str | None:
    """Return why this process must not serve, in one line, or None. Raises django.db.Error."""
    for each in others:
        if reason := each():
            return reason
    reason = _role_refusal()
    return f"not in production: {reason}" if reason else None


def _role_refusal() -> str | None:
    """Check the role, in production only."""
    if not settings.DURABLEAGENTS.is_production:
        return None

    def ask(statement: str, parameters: Sequence[Any]) -> tuple[str, bool, str]:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            row: tuple[str, bool, str] = cursor.fetchone()
            return row

    try:
        return problem_of(ask)
    finally:
        connection.close()
