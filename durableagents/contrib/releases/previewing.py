"""Previews one run's migration: reads its journal like a claim, and replays the current visit with the new code."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.codec import unpack
from ledger.errors import DurableAgentsError, NotFound
from ledger.models import Event, Head
from runs.engine.errors import JournalBroken, describe_error
from runs.engine.migrating import MigrationResult, Moving, refused, tried
from runs.engine.tape import payload_of
from runs.fleet.agent_versions import state_format
from runs.journal.digests import hasher
from runs.models import ENDED, Run, State, Wait
from runs.services import lifecycle, related_runs
from runs.services.trial import TIMEOUT_SECONDS, Recorded, TrialFailed, position_on_record, run_trial

_SYSTEM = Actor(kind="system", name="migrating")


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a preview.

    `seq` is the number of the journal's last event. `is_retried` says whether the migration retries a failed run."""

    run: Run | None
    seq: int
    found: MigrationResult
    is_retried: bool = False


class UnseenResult(DurableAgentsError):
    """A result arrived after the run had failed, and no operator has seen it yet."""

    status, code, title = 409, "late_news", "Unseen late result"

    def __init__(self) -> None:
        super().__init__(
            "a result arrived after the run had failed, and an operator has to see it: retry the run on its version"
        )


def preview_run(run_id: UUID, moving: Moving, *, waits: bool = True) -> Preview:
    """Preview a run's migration. A failed run is retried for the preview, and the retry is rolled back.

    `waits` tells whether to wait for a failed run's lock. If not, and another transaction holds the lock,
    OperationalError is raised."""
    with transaction.atomic():
        run = Run.objects.filter(pk=run_id).first()
        if run is None:
            return Preview(None, 0, refused("not_found", NotFound("run", run_id).detail))
        head = Head.objects.filter(pk=run_id).first()
        if head is None:
            return Preview(run, 0, refused("damaged", "its head is missing"))
        if (refusal := refusal_by_rows(run, head, moving)) is not None:
            return Preview(run, head.seq, refusal)
        seq, is_retried = head.seq, run.state == State.FAILED
        try:
            if is_retried:
                head = _retry_for_preview(run, head, waits=waits)
            recorded = position_on_record(run, head.seq)
        except JournalBroken as broken:
            return Preview(run, seq, refused("damaged", f"the run's journal is damaged: {broken}"))
        except DurableAgentsError as error:
            return Preview(run, seq, refused(error.code, error.detail))
        finally:
            if is_retried:
                transaction.set_rollback(True)
    if recorded.will_undo:
        return Preview(run, seq, refused("undoing", "it will undo its effects and then end"))
    found = _try(moving, run, recorded)
    return Preview(run, seq if is_retried else recorded.seq, refusal_by_related(run, found) or found, is_retried)


def _retry_for_preview(run: Run, head: Head, *, waits: bool) -> Head:
    """Write the retry; the caller reads the result and rolls it back.

    Raises UnseenResult, and the errors of `retry`.
    """
    seq = head.seq
    if not waits:
        Head.objects.select_for_update(nowait=True).filter(pk=run.pk).first()
    lifecycle.retry(run.pk, by=_SYSTEM, justification="preview")
    head.refresh_from_db()
    retried = Event.objects.filter(run_id=run.pk, seq__gt=seq, kind=e.RunRetried.KIND).first()
    if retried is not None and "late" in payload_of(e.decode(retried.clear, unpack(retried.sealed))):
        raise UnseenResult()
    return head


def refusal_by_rows(run: Run, head: Head, moving: Moving) -> MigrationResult | None:
    """Return a refusal if the run's rows forbid the migration; None otherwise.

    The check is repeated under the run's lock.
    """
    if run.graph_id == moving.to.graph_id:
        return refused("already", f"it already has version {run.graph_id}")
    if run.graph_id != moving.of:
        return refused("other_version", f"it has version {run.graph_id}")
    if run.state == State.FAILED and not moving.retry:
        return refused("ended", "it is failed: it can be retried with the migration (`retry`)")
    if run.state in ENDED and run.state != State.FAILED:
        return refused("ended", f"it is {run.state}")
    if run.owner is not None or head.lease is not None:
        return refused("driven", "a worker executes it: pause it first, and wait until it is paused")
    if run.is_undoing and run.state != State.FAILED:
        return refused("undoing", "it is undoing its effects, which no other version may take over")
    if head.is_cancel_requested:
        return refused("cancelled", "its cancellation was requested")
    return None


def refusal_by_related(run: Run, found: MigrationResult) -> MigrationResult | None:
    """Return a refusal if the migration would resolve an operator's stop while a related run may do the same work."""
    is_stopped = any(kind == Wait.Kind.OPERATOR for _, _, kind, _ in found.closes)
    if found.is_refused or not is_stopped or (other := related_runs.find_competing_run(run)) is None:
        return None
    return refused("beside", related_runs.why_not(other))


def _try(moving: Moving, run: Run, recorded: Recorded) -> MigrationResult:
    moving = replace(moving, number=state_format(run.graph_id, recorded.position.at.fingerprint))
    to = moving.to.graph_id

    def work() -> MigrationResult:
        trial = tried(
            moving,
            str(run.pk),
            recorded.created,
            recorded.position,
            recorded.earlier,
            depth=run.depth,
            hasher=hasher(),
        )
        return asyncio.run(trial)

    try:
        return run_trial(work, f"previewing run {run.pk}")
    except TrialFailed as failed:
        if failed.code == "busy":
            return refused("busy", f"another run was previewed for more than {TIMEOUT_SECONDS:g} s: ask again")
        if failed.cause is None:
            return refused("too_slow", f"{to} took more than {TIMEOUT_SECONDS:g} s to repeat its visit")
        return refused("broke", f"{to} failed when it repeated the visit: {describe_error(failed.cause)}")
