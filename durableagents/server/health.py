"""Health and readiness for probes and people. The responses are public and reveal no secrets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, Error, connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from durableagents.server.shared_read import SharedRead
from runs.fleet import agent_versions, members
from runs.models import Process

WORKER_LIMIT_SECONDS = 10.0
SWEEPER_LIMIT_SECONDS = 15.0
MAX_SECONDS = 3.0

# Tests whether the disk of the default tablespace, where the tables are, is full. The result exceeds work_mem, so
# PostgreSQL writes a temporary file and removes it after the statement. Read-only sessions may do this too, so whether
# writes are allowed is queried separately.
_ROOM = "SELECT count(*) FROM generate_series(1, 20000) n"
_IS_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean"

# The times when the database last answered this process, and when it last accepted writes (monotonic clock). /readyz
# shows their ages during an outage.
_answered_at: dict[str, float] = {}


ALIVE = {"status": "ok"}

# Further checks by name, registered by apps. Each returns a problem, or "".
more_checks: dict[str, Callable[[], str]] = {}


# Exempt from CSRF, so that other methods get a 405 instead of an error about a missing token.
@csrf_exempt
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer that this process runs.

    Nothing else is checked, so that the process isn't killed because of outages elsewhere.
    """
    return _answer(ALIVE, 200)


@csrf_exempt
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return whether the installation can work: a writable database, a live worker, a recent sweep."""
    try:
        checks, facts = _reading.result(MAX_SECONDS)
    except TimeoutError:
        checks, facts = _unknown(), {}
    is_ready = all(check["ok"] for check in checks.values())
    return _answer(
        {"status": "ready" if is_ready else "not ready", "checks": checks, **facts}, 200 if is_ready else 503
    )


_Probed = tuple[dict[str, dict[str, Any]], dict[str, Any]]
_UNKNOWN = {"ok": False, "age_seconds": None}


def _probe() -> _Probed:
    checks, facts = _unknown(), dict[str, Any]()
    if _has_passed("database", _answers):
        checks["database"] = {"ok": True, "age_seconds": 0.0}
        if _has_passed("writes", _takes_writes):
            checks["writes"] = {"ok": True, "age_seconds": 0.0}
        checks["workers"] = _aged(_worker_age, WORKER_LIMIT_SECONDS)
        for name, problem in more_checks.items():
            checks[name] = {"ok": not problem(), "age_seconds": None}
        checks["sweeper"] = _aged(members.last_sweep_age_seconds, SWEEPER_LIMIT_SECONDS)
        facts["unserved_versions"] = _unserved()
    return checks, facts


_reading = SharedRead("readyz", _probe)


def _unserved() -> int | None:
    """Return the number of versions with ready runs that no worker serves.

    The installation stays ready, because other runs make progress.
    """
    try:
        return len(agent_versions.unserved())
    except DatabaseError:
        return None


def _has_passed(name: str, check: Callable[[], bool]) -> bool:
    try:
        is_ok = check()
    except Error:
        return False
    if is_ok:
        _answered_at[name] = time.monotonic()
    return is_ok


def _answers() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return True


def _takes_writes() -> bool:
    """Return whether the database accepts writes and has room for them. Raises DatabaseError on a full disk."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_IS_READ_ONLY)
        (is_read_only,) = cursor.fetchone()
        cursor.execute("SET LOCAL work_mem = '64kB'")
        cursor.execute(_ROOM)
    return not is_read_only


def _unknown() -> dict[str, dict[str, Any]]:
    return {
        "database": _silent("database"),
        "writes": _silent("writes"),
        "workers": _UNKNOWN,
        "sweeper": _UNKNOWN,
    }


def _silent(name: str) -> dict[str, Any]:
    at = _answered_at.get(name)
    return {"ok": False, "age_seconds": None if at is None else round(time.monotonic() - at, 3)}


def _worker_age() -> float | None:
    """Return the seconds since the newest heartbeat of a worker, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT extract(epoch FROM clock_timestamp() - max(last_heartbeat_at)) FROM {Process._meta.db_table}"
            " WHERE kind = 'worker' AND ended_at IS NULL"
        )
        (age,) = cursor.fetchone()
    return None if age is None else float(age)


def _aged(age_of: Callable[[], float | None], limit: float) -> dict[str, Any]:
    try:
        age = age_of()
    except DatabaseError:
        age = None
    return {
        "ok": age is not None and age < limit,
        "age_seconds": None if age is None else round(max(age, 0.0), 3),
    }


def _answer(body: dict[str, Any], status: int) -> JsonResponse:
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})
