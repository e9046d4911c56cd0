"""Is it alive, and can it work? For probes and for people; open to all, tells no secrets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from runs.fleet import agent_versions, members
from runs.models import Process

WORKER_LIMIT_SECONDS = 10.0
SWEEPER_LIMIT_SECONDS = 15.0
# A database that stands still (its host is frozen, its disk hangs) answers nothing and refuses nothing, and keeps no
# time limit of its own.
LOOK_SECONDS = 3.0

# When this process last had an answer from the database (monotonic): its age is what /readyz tells during an outage.
_database_answered_at: float | None = None


ALIVE = {"status": "ok"}


# Whoever asks with another method is told which there are, not that a token is missing.
@csrf_exempt
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """This process answers. Asks nothing else, so that an outage elsewhere never gets it killed."""
    return _answer(ALIVE, 200)


@csrf_exempt
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """The whole can take work: database, a worker that breathes, a sweep that comes round."""
    checks, facts = _looked() or ({"database": _silent(), "workers": _UNKNOWN, "sweeper": _UNKNOWN}, {})
    is_ready = all(check["ok"] for check in checks.values())
    return _answer(
        {"status": "ready" if is_ready else "not ready", "checks": checks, **facts}, 200 if is_ready else 503
    )


_Probed = tuple[dict[str, dict[str, Any]], dict[str, Any]]
_UNKNOWN = {"ok": False, "age_seconds": None}
_lock = threading.Lock()
_looking: Future[_Probed] | None = None
_looking_since = 0.0


def _looked() -> _Probed | None:
    """What a look comes to, or None if it takes too long. Whoever asks while somebody looks shares that look, so that
    however often a probe comes, one thread and one connection wait for a database that stands still."""
    global _looking, _looking_since
    with _lock:
        if _looking is None or _looking.done():
            _looking, _looking_since = Future(), time.monotonic()
            # A daemon, since a process that was told to end must not wait for the database either.
            threading.Thread(target=_probe, args=(_looking,), name="readyz", daemon=True).start()
        probe, left = _looking, max(_looking_since + LOOK_SECONDS - time.monotonic(), 0.0)
    try:
        return probe.result(left)
    except TimeoutError:
        return None


def _probe(answer: Future[_Probed]) -> None:
    try:
        checks, facts = {"database": _database()}, dict[str, Any]()
        if checks["database"]["ok"]:
            checks["workers"] = _aged(_worker_age, WORKER_LIMIT_SECONDS)
            checks["sweeper"] = _aged(members.last_sweep_age_seconds, SWEEPER_LIMIT_SECONDS)
            facts["unserved_versions"] = _unserved()
        else:
            checks["workers"] = checks["sweeper"] = _UNKNOWN
        answer.set_result((checks, facts))
    except BaseException as error:
        answer.set_exception(error)  # raised where it was asked
    finally:
        connection.close()


def _unserved() -> int | None:
    """How many versions of ready runs no running worker has. No reason to take the installation out of service: the
    others run."""
    try:
        return len(agent_versions.unserved())
    except DatabaseError:
        return None


def _database() -> dict[str, Any]:
    global _database_answered_at
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return _silent()
    _database_answered_at = time.monotonic()
    return {"ok": True, "age_seconds": 0.0}


def _silent() -> dict[str, Any]:
    return {
        "ok": False,
        "age_seconds": None if _database_answered_at is None else round(time.monotonic() - _database_answered_at, 3),
    }


def _worker_age() -> float | None:
    """Seconds since the newest heartbeat of a worker, by the database's clock."""
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
