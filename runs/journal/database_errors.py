"""Classifies database errors: outages to wait out, refused statements, and our own error codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
from django.db import DatabaseError, InterfaceError

from ledger.codec import KeyMissing
from ledger.errors import StaleLease
from runs.engine.errors import (
    ApprovalExpired,
    ApprovalMissing,
    BudgetShort,
    NotAsked,
    PoliciesChanged,
    RunHalted,
    SharedBudgetShort,
    SharedBudgetUnpriced,
)

T = TypeVar("T")

STALE, NO_APPROVAL, EXPIRED, SHORT = "DA001", "DA002", "DA003", "DA004"
NO_ROOM, NO_PRICE, HALTED = "DA005", "DA006", "DA007"
NOT_OPEN, JUDGED_AGAIN = "DA059", "DA060"
# serialization failure, deadlock, idle in a transaction for too long, read-only (a standby being promoted)
_PASSING = frozenset({"40001", "40P01", "25P03", "25006"})
# Refusals that other sessions cause and that are therefore temporary; also a lock timeout, or too many connections.
_SOMEBODY_ELSE = _PASSING | {"55P03", "53300"}
MAX_REFUSALS = 6


def _itself(error: BaseException) -> BaseException:
    is_wrapped = isinstance(error, (DatabaseError, InterfaceError)) and error.__cause__ is not None
    return error.__cause__ or error if is_wrapped else error


def is_transient(error: BaseException) -> bool:
    """Return whether to retry.
    The database may be unreachable, restarting or out of connections, or a lock timed out."""
    error = _itself(error)
    if getattr(error, "sqlstate", None) in _PASSING:
        return True
    ours = (STALE, NO_APPROVAL, EXPIRED, SHORT, NO_ROOM, NO_PRICE, HALTED, NOT_OPEN, JUDGED_AGAIN)
    return (
        isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        and getattr(error, "sqlstate", None) not in ours
    )


def is_refusal(error: BaseException) -> bool:
    """Return whether the server refused the statement: the statement had no effect, and the connection is intact."""
    error = _itself(error)
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized == "ERROR"


class StatementRefused(RuntimeError):
    """The database is available, but repeatedly refuses a statement.
    The statement is too slow or too large, or there is no space left."""


class Refusals:
    """Counts refusals of one statement.
    Outages are waited out, however long they take; the number of refusals is limited."""

    def __init__(self, what: str) -> None:
        self._what, self._count = what, 0

    def note(self, error: BaseException) -> bool:
        """Count a transient error, and return whether the server refused.
        Raises StatementRefused at the limit."""
        error = _itself(error)
        if not isinstance(error, psycopg.Error) or not is_refusal(error):
            return False
        if error.sqlstate not in _SOMEBODY_ELSE:
            self._count += 1
        if self._count >= MAX_REFUSALS:
            reason = f"{error.diag.message_primary} ({error.sqlstate})"
            raise StatementRefused(
                f"{self._what}: the database refused the statement {self._count} times: {reason}"
            ) from error
        return True


def translated(error: psycopg.Error) -> Exception:
    """Return our own error for our own SQLSTATE, and any other error unchanged."""
    state, message = error.sqlstate, error.diag.message_primary or str(error)
    if state == STALE:
        return StaleLease(message)
    if state == EXPIRED:
        return ApprovalExpired(message, json.loads(error.diag.message_detail or "{}"))
    if state == JUDGED_AGAIN:
        return PoliciesChanged(message)
    if state == SHORT:
        return BudgetShort(message)
    if state == NOT_OPEN:
        return NotAsked(message, json.loads(error.diag.message_detail or "{}"))
    if state == HALTED:
        data = json.loads(error.diag.message_detail or "{}")
        is_at_call = data.get("scope") in ("tool", "provider")
        return RunHalted(message, f"{data.get('scope')}:{data.get('key')}" if is_at_call else "")
    if state in (NO_ROOM, NO_PRICE):
        data = json.loads(error.diag.message_detail or "{}")
        return (
            SharedBudgetShort(message, data)
            if state == NO_ROOM
            else SharedBudgetUnpriced(message, str(data.get("model")))
        )
    return ApprovalMissing(message) if state == NO_APPROVAL else error


def raise_known(error: Exception) -> None:
    """Raise a commit's error if it is one of our own errors, or a bug.
    If the error is transient, return, so that the caller waits."""
    known = translated(error) if isinstance(error, psycopg.Error) else error
    if known is not error:
        raise known from error
    if not is_transient(error):
        raise error


async def patiently(reading: Callable[[], Awaitable[T]], what: str) -> T:
    """Repeat a read until the database answers.
    Raises StatementRefused, and KeyMissing, because another process may have the key."""
    delay, refusals = 0.05, Refusals(what)
    while True:
        try:
            return await reading()
        except (psycopg.Error, OSError) as error:
            if not is_transient(error) or isinstance(error, KeyMissing):
                raise
            refusals.note(error)
        await asyncio.sleep(delay)
        delay = min(delay * 2, 1.0)
