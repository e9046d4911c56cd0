"""Carry out batches; any worker can do so.

An item's operation and outcome are one commit. Items that another worker holds are skipped, and the requester's roles
are read again before each run.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import connection, transaction

from durableagents.contrib.bulk.models import Batch, BatchItem
from durableagents.contrib.bulk.services import STOP_LOCK, digest_of, is_authentic_batch
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound, first_line
from ledger.web.roles import OPERATOR, roles
from ledger.web.seeing.viewers import EVERYTHING, Viewer, looking_as, viewer_of
from runs import seen
from runs.journal.database_errors import is_refusal, is_transient
from runs.models import Run, Wait
from runs.services import authority, lifecycle, reconciling
from runs.services.allowed import ANOTHER_DOUBT, not_alike
from runs.services.budgets import raising
from runs.services.command import refusal
from runs.services.fleet import requeue
from runs.services.priorities import set_priority
from runs.services.settling.agreeing import Proposal

log = logging.getLogger("durableagents.contrib.bulk")
IS_DUE = "EXISTS (SELECT 1 FROM runs_batch WHERE started_at IS NOT NULL AND ended_at IS NULL)"
TURN_SECONDS = 5.0
# How often an item may fail because of the database or our code before it is given up.
MAX_TRIES = 6
_FORGED = "it was written or changed outside the application, or its runs were changed, so it is not executed"
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "pause": lifecycle.pause,
    "resume": lifecycle.resume,
    "cancel": lifecycle.cancel,
    "retry": lifecycle.retry,
    "priority": set_priority,
    "requeue": requeue,
    "budget": raising.raise_to,
    "reconcile": reconciling.reconcile,
}
PROPOSED = "proposed"  # the verdict waits for a second person
_reported: set[UUID] = set()


def work_off() -> None:
    """Work on batches, as a periodic job, until nothing is left that this worker can do."""
    while work(TURN_SECONDS):
        pass


def work(seconds: float) -> bool:
    """Work on batches for a few seconds, and return whether there may be more work."""
    until = time.monotonic() + seconds
    under_way = Batch.objects.filter(started_at__isnull=False, ended_at__isnull=True).order_by("started_at", "id")
    turns = deque((batch, list[int]()) for batch in under_way if _is_authentic(batch))
    while turns:  # round robin, so that small batches don't wait for large ones
        batch, passed = turns.popleft()
        if _has_more(batch, passed):
            turns.append((batch, passed))
            if time.monotonic() >= until:
                return True
    return False


def _is_authentic(batch: Batch) -> bool:
    """Return whether the batch is authentic and has exactly the selected runs."""
    items = list(batch.items.order_by("n").values_list("run_id", "wait_id")) if is_authentic_batch(batch) else []
    if items and digest_of(items) == batch.digest:
        return True
    if batch.pk not in _reported:
        _reported.add(batch.pk)
        log.error("batch %s: %s", batch.pk, _FORGED)
    return False


def _has_more(batch: Batch, passed: list[int]) -> bool:
    """Work on a batch for one turn and return whether it needs another turn. Its errors don't affect other batches."""
    try:
        if _do_next(batch, passed):
            return True
        _close(batch.pk)
    except Exception as error:
        if is_transient(error) and not is_refusal(error):
            raise
        log.warning("batch %s: %s", batch.pk, first_line(error), exc_info=not is_refusal(error))
    return False


def _do_next(batch: Batch, passed: list[int]) -> bool:
    """Carry out the next free item; return False if there is none.

    Items that the database refuses are retried later.
    """
    item_id = None
    try:
        with transaction.atomic():
            if not _is_active(batch.pk):
                return False
            left = batch.items.select_for_update(skip_locked=True).filter(outcome="").exclude(pk__in=passed)
            item = left.order_by("n").first()
            if item is None:
                return False
            item_id = item.pk
            item.outcome, item.code, item.why = _do(batch, item)
            item.at = database_now()
            item.save(update_fields=["outcome", "code", "why", "at"])
    except Exception as error:
        if item_id is None or (is_transient(error) and not is_refusal(error)):
            raise
        passed.append(item_id)
        _count_failure(item_id, error)
    return True


def _is_active(batch_id: UUID) -> bool:
    """Return whether the batch is still running, and prevent a stop until this transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock_shared({STOP_LOCK})", [str(batch_id)])
        cursor.execute("SELECT ended_at IS NULL FROM runs_batch WHERE id = %s", [batch_id])
        return bool(cursor.fetchone()[0])


def _do(batch: Batch, item: BatchItem) -> tuple[str, str, str]:
    """Carry out the action within the requester's access scope, and return its outcome."""
    run_id = item.run_id
    try:
        held, who = _requester(batch)
        with transaction.atomic(), looking_as(who):
            if not seen.sees(who, run_id):
                raise NotFound("run", run_id)
            kind, _, name = batch.by.partition(":")
            run = lifecycle.find(run_id)
            role = authority.role_to(batch.action, run, held=held, person=batch.person)
            by = Actor(kind, name, role, batch.auth, batch.address, batch.person, batch=str(batch.pk))
            parameters = _parameters(batch, item, run)
            result = OPERATIONS[batch.action](run_id, by=by, justification=batch.justification, **parameters)
    except DurableAgentsError as refused:
        return BatchItem.Outcome.REFUSED, refused.code, refused.detail[:2000]
    if isinstance(result, Proposal):
        return (
            BatchItem.Outcome.DONE,
            PROPOSED,
            f"Recorded at event {result.seq}. A second operator must confirm it.",
        )
    return BatchItem.Outcome.DONE, "", ""


def _parameters(batch: Batch, item: BatchItem, run: Run) -> dict[str, Any]:
    """Return the parameters for this run. Raises IllegalTransition.

    A verdict applies only to the call whose outcome was unknown when the batch was requested.
    """
    if batch.action != "reconcile":
        return dict(batch.said)
    if item.wait_id is None:
        unknown_outcomes = run.waits.filter(kind=Wait.Kind.RECONCILE, resolved_at__isnull=True).count()
        raise refusal("reconcile", run, not_alike(unknown_outcomes) or ANOTHER_DOUBT)
    receipt = {"receipt": batch.receipt} if "receipt" in batch.said else {}
    return batch.said | receipt | {"wait_id": item.wait_id}


def _requester(batch: Batch) -> tuple[frozenset[str], Viewer]:
    """Return the requester's current roles and access scope. Shell users always have the roles of an operator."""
    if batch.by.startswith("os:"):
        return frozenset({OPERATOR}), EVERYTHING
    person = None if batch.person is None else get_user_model().objects.filter(pk=batch.person).first()
    return roles(person), viewer_of(person)


def _count_failure(item_id: int, error: Exception) -> None:
    """Count a failure caused by the database or our code. After MAX_TRIES failures the item counts as failed."""
    log.warning("batch item %s: %s", item_id, first_line(error), exc_info=not is_refusal(error))
    with transaction.atomic():
        item = BatchItem.objects.select_for_update(skip_locked=True).filter(pk=item_id, outcome="").first()
        if item is None:
            return
        item.tries += 1
        if item.tries >= MAX_TRIES:
            item.outcome, item.code, item.at = BatchItem.Outcome.FAILED, "trouble", database_now()
            item.why = f"Given up after {item.tries} tries: {first_line(error)}"[:2000]
        item.save(update_fields=["tries", "outcome", "code", "why", "at"])


@transaction.atomic
def _close(batch_id: UUID) -> None:
    batch = Batch.objects.select_for_update().get(pk=batch_id)
    if batch.ended_at is not None or batch.items.filter(outcome="").exists() or not batch.is_authentic:
        return
    batch.ended_at, batch.receipt = database_now(), None
    batch.seal()
    batch.save(update_fields=["ended_at", "receipt", "code"])
