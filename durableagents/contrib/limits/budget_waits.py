"""Admits calls that wait for a shared budget, or ends them at their deadline; and logs the notices."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection

from durableagents.contrib.limits.models import BudgetNotice
from durableagents.contrib.limits.shared_budgets import amount_for_people
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.models import Head
from runs.journal import notify
from runs.journal.database_errors import is_refusal, is_transient
from runs.models import Run, Wait
from runs.services.command import end_unserved
from runs.services.wakeups import NOTIFY_SQL

log = logging.getLogger("durableagents.limits")
_LOCK = 7_231_026  # arbitrary, the same in every process
BATCH = 100
_CONDITION = "is_untold OR gate_at IS NOT NULL OR is_on AND ends_at <= clock_timestamp()"
IS_DUE = f"EXISTS (SELECT 1 FROM runs_poolmeter WHERE {_CONDITION})"
_DUE = f"""
    SELECT pool_id, is_untold, gate_at IS NOT NULL, is_on AND ends_at <= clock_timestamp() FROM runs_poolmeter
    WHERE {_CONDITION} ORDER BY pool_id"""
_OPEN = "SELECT wait_id, run_id, seq, is_awake, problem FROM runs_open_gate(%s, %s, %s::uuid[], %s)"
_MARK_LOGGED = "UPDATE runs_poolmeter SET is_untold = false WHERE pool_id = %s AND is_untold"
_TEXTS = {
    BudgetNotice.Kind.WARNING: "four fifths are used or reserved",
    BudgetNotice.Kind.BREACH: "calls wait for it",
}
Failure = tuple[UUID, UUID, Exception]


class NotAdmitted(DurableAgentsError):
    """A waiting call can't be admitted, for the reason that the database returned."""


def admit_waiting(excluding: list[UUID], until: float) -> list[Failure]:
    """Start due periods, log notices, and admit waiting calls as far as there is room.

    There may be room because of a higher limit, a new period or released reservations. Waits in `excluding` are
    skipped. Returns the waits that failed."""
    failures: list[Failure] = []
    for budget_id in _begin():
        try:
            while time.monotonic() < until:
                found = _admit(budget_id, [*excluding, *(wait_id for wait_id, *_ in failures)])
                failures += [(wait, run, NotAdmitted(problem)) for wait, run, problem in found if problem is not None]
                if len(found) < BATCH:
                    break
        except Exception as error:
            if is_transient(error) and not is_refusal(error):
                raise
            log.exception("shared budget %s: no call can be admitted", budget_id)
    return failures


def _begin() -> list[int]:
    """Start due periods, log notices, and return the budgets for which calls wait. One query if nothing is due."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE)
        rows = cursor.fetchall()
        if any(is_over for *_, is_over in rows):
            cursor.execute("SELECT runs_turn_pools()")
        for budget_id, is_untold, *_ in rows:
            if is_untold:
                cursor.execute(_MARK_LOGGED, [budget_id])
                if cursor.rowcount:
                    _log_notice(budget_id)
    return [budget_id for budget_id, _, is_gated, _ in rows if is_gated]


def _admit(budget_id: int, excluding: Sequence[UUID]) -> list[tuple[UUID, UUID, str | None]]:
    """Admit a batch of waiting calls; return each wait with its run and its problem, if any."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [_LOCK, budget_id, list(excluding), BATCH])
        rows = [row for row in cursor.fetchall() if row[0] is not None]
    if any(is_awake for *_, is_awake, _ in rows):
        notify.notify_after_commit(connection, NOTIFY_SQL)
    notify.ring_many({str(run_id): seq for _, run_id, seq, _, problem in rows if problem is None})
    return [(wait_id, run_id, problem) for wait_id, run_id, *_, problem in rows]


def _log_notice(budget_id: int) -> None:
    notice = BudgetNotice.objects.select_related("budget").filter(budget_id=budget_id).order_by("-id").first()
    if notice is None:
        return
    log.warning(
        "shared budget %s (%s): %s: %s used, %s reserved, of %s",
        budget_id,
        notice.budget.name,
        _TEXTS[BudgetNotice.Kind(notice.kind)],
        *(amount_for_people(notice.budget.resource, each) for each in (notice.used, notice.reserved, notice.most)),
    )


def give_up(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """End a run whose call was not admitted before the deadline of its wait."""
    reason = f"the shared budget {wait.detail.get('name')} had no room for the call before the deadline"
    payload = {"justification": reason, "resource": str(wait.detail.get("resource"))}
    end_unserved(head, run, wait, now, by, payload=payload)
