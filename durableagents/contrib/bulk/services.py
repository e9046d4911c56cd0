"""Request, start and stop a batch: one operation on many runs, recording each step.

The selection is fixed at the request, so that exactly the previewed runs are changed. Workers carry it out
(`working.py`). A batch's row is locked before its items, and its items before any run's head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

import uuid_utils
from django.db import connection, transaction
from pydantic import Field

from durableagents.contrib.bulk.forecast import forecast
from durableagents.contrib.bulk.models import Batch
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.web.roles import APPROVER, INTEGRATOR, OPERATOR, role_in
from runs.engine.budget import Budget
from runs.engine.canonical import canonical
from runs.services.bodies import Effects, RunFilter, SteerBody, Verdict
from runs.services.budgets.starting import check_limit

MAX_RUNS = 10_000
Action = Literal["pause", "resume", "cancel", "retry", "priority", "requeue", "budget", "reconcile"]
RunId = Annotated[UUID, Field(strict=False)]


class BatchBody(SteerBody):
    """One operation on many runs: those that a filter matches now, or those named. The set is fixed by the request."""

    action: Action = Field(description="Operation to perform on each run.")
    filter: RunFilter | None = Field(default=None, description="Use either `filter` or `runs`.")
    runs: Annotated[list[RunId], Field(min_length=1, max_length=MAX_RUNS)] | None = Field(
        default=None, description="Ids of the runs; use either `runs` or `filter`."
    )
    effects: Effects | None = Field(default=None, description="For cancel: what happens to effects that can be undone.")
    priority: Annotated[int, Field(ge=-100, le=100)] | None = Field(
        default=None, description="For `priority`: the new priority."
    )
    budget: Budget | None = Field(
        default=None, description="Caps to raise to these values. Higher caps and missing caps stay as they are."
    )
    verdict: Verdict | None = Field(
        default=None, description="Outcome to record for the one unknown outcome of each run."
    )
    receipt: Any = Field(default=None, description="Result of the calls that happened; the same for each run.")
    sender_is_gone: bool | None = Field(
        default=None,
        description="For reconcile: confirms that a worker given up without proof of its end no longer runs.",
    )
    start: bool = Field(default=True, description="False: only preview the results; start the batch later.")


class BatchForm(RunFilter, SteerBody):
    """The console's form of the same request, in which a filter selects the runs."""

    action: Action
    effects: Effects | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    usd: Annotated[str, Field(max_length=40)] = ""
    model_calls: Annotated[str, Field(max_length=40)] = ""
    tool_calls: Annotated[str, Field(max_length=40)] = ""
    steps: Annotated[str, Field(max_length=40)] = ""
    verdict: Verdict | None = None
    receipt: Any = None


class BatchActBody(SteerBody):
    """Start a previewed batch, or stop one that is in progress."""


# Roles that may request each action. The right is checked again for each run.
REQUESTERS = {
    "pause": (OPERATOR, APPROVER, INTEGRATOR),
    "resume": (OPERATOR, APPROVER, INTEGRATOR),
    "cancel": (OPERATOR, APPROVER, INTEGRATOR),
    "retry": (OPERATOR,),
    "priority": (OPERATOR,),
    "requeue": (OPERATOR,),
    "budget": (OPERATOR, APPROVER),
    "reconcile": (OPERATOR,),
}
_INSERT_ITEMS = """
    INSERT INTO runs_batchitem (batch_id, n, run_id, wait_id)
    SELECT %s, n, run_id, wait_id FROM unnest(%s::uuid[], %s::uuid[]) WITH ORDINALITY AS u(run_id, wait_id, n)"""
# Selects the only unknown outcome of each run. Runs with none, or with several, can't be settled in bulk.
_UNKNOWN_OUTCOMES = """
    SELECT run_id, min(id::text)::uuid FROM runs_wait
    WHERE run_id = ANY(%s) AND kind = 'reconcile' AND resolved_at IS NULL GROUP BY run_id HAVING count(*) = 1"""
# Workers hold this lock shared while they carry out an item; a stop takes it in exclusive mode. The lock queue is fair,
# so a stop gets the lock next.
STOP_LOCK = "hashtextextended('batch ' || %s, 0)"


class IllegalBatchState(DurableAgentsError):
    """The batch was already started, stopped or done."""

    status, code, title = 409, "illegal-state", "The state does not allow this"

    def __init__(self, batch: Batch, what: str) -> None:
        super().__init__(f"The batch of {batch.total} runs is {batch.state} and can't be {what}.", state=batch.state)


def check_requester(action: str, held: frozenset[str]) -> str:
    """Return the role under which a person may request the action. Raises Forbidden."""
    role = role_in(REQUESTERS[action], held)
    if role is None:
        raise Forbidden(f"Only {' or '.join(REQUESTERS[action])} may {action} runs.")
    return role


@transaction.atomic
def create(
    body: BatchBody,
    ids: Sequence[UUID],
    chosen: dict[str, Any],
    *,
    by: Actor,
    held: frozenset[str],
    most: Budget | None = None,
) -> Batch:
    """Create a batch with a fixed selection. Raises Forbidden, InvalidInput, JustificationRequired.

    `most` is the highest budget of a run that the requester may grant. Workers begin at once if `body.start`.
    """
    check_requester(body.action, held)
    why = justified(body.action, body.justification)
    parameters = _parameters(body)
    if body.budget is not None and most is not None:
        check_limit(body.budget, most)
    ids = list(dict.fromkeys(ids))
    if not ids:
        raise _wrong(
            "filter" if body.runs is None else "runs", "no run matches", "check the filter in the list of runs"
        )
    if len(ids) > MAX_RUNS:
        raise _wrong("filter", f"more than {MAX_RUNS:,} runs match", "narrow it, and process the rest afterwards")
    now, waits = database_now(), _unknown_outcomes(ids) if body.action == "reconcile" else {}
    batch = Batch(
        id=UUID(str(uuid_utils.uuid7())),
        action=body.action,
        said=parameters,
        receipt=body.receipt,
        justification=why,
        chosen=chosen,
        total=len(ids),
        digest=digest_of((id, waits.get(id)) for id in ids),
        forecast=forecast(body.action, parameters, ids, by=by, held=held),
        by=by.ref,
        person=by.person,
        auth=by.auth,
        address=by.address,
        made_at=now,
        started_at=now if body.start else None,
    )
    batch.seal()
    batch.save(force_insert=True)
    with connection.cursor() as cursor:
        cursor.execute(_INSERT_ITEMS, [batch.pk, ids, [waits.get(id) for id in ids]])
    _record("bulk", batch, by=by, why=why, after={"runs": batch.total, "chosen": chosen, **parameters})
    return batch


def _unknown_outcomes(ids: Sequence[UUID]) -> dict[UUID, UUID]:
    with connection.cursor() as cursor:
        cursor.execute(_UNKNOWN_OUTCOMES, [list(ids)])
        return dict(cursor.fetchall())


def _parameters(body: BatchBody) -> dict[str, Any]:
    """Return the action's parameters. Raises InvalidInput for parameters of another action."""
    if body.filter is None and body.runs is None:
        raise _wrong("filter", "is missing, as is `runs`", "give one of them")
    if body.filter is not None and body.runs is not None:
        raise _wrong("filter", "can't be given with runs", "give one of them")
    if body.effects is not None and body.action != "cancel":
        raise _wrong("effects", f"is not a parameter of {body.action}", "leave it out")
    _check_belongs(body, "priority")
    fields = {name: value for name in ("effects", "priority") if (value := getattr(body, name)) is not None}
    return fields | _budget_parameters(body) | _verdict_parameters(body)


def _check_belongs(body: BatchBody, name: str) -> None:
    """Check that a parameter is given if and only if its action is requested. Raises InvalidInput."""
    is_wanted = body.action == name
    if (getattr(body, name) is None) == is_wanted:
        problem = "is missing" if is_wanted else f"is not a parameter of {body.action}"
        raise _wrong(name, problem, "add it" if is_wanted else "leave it out")


def _budget_parameters(body: BatchBody) -> dict[str, Any]:
    """Return the caps to raise to. Raises InvalidInput for the removal of a cap, which isn't possible in bulk."""
    _check_belongs(body, "budget")
    if body.budget is None:
        return {}
    stated = body.budget.stated()
    if removed := [name for name in body.budget.model_fields_set if name not in stated]:
        raise _wrong(f"budget.{removed[0]}", "can't be removed in bulk", "give a value")
    if not stated:
        raise _wrong("budget", "names no cap", "name one: usd, steps …")
    return {"budget": {name: str(value) if name == "usd" else value for name, value in stated.items()}}


def _verdict_parameters(body: BatchBody) -> dict[str, Any]:
    """Return the verdict with the digest of its receipt.

    The receipt itself is a payload, and records are kept forever.
    """
    given = {
        name: value for name in ("verdict", "receipt", "sender_is_gone") if (value := getattr(body, name)) is not None
    }
    if "receipt" in given:
        try:
            given["receipt"] = {"sha256": receipt_digest(body.receipt)}
        except ValueError:
            raise _wrong("receipt", "contains an inexact number", "send it as text") from None
    if body.action != "reconcile":
        if given:
            name = next(iter(given))
            raise _wrong(name, f"is not a parameter of {body.action}", "leave it out")
        return {}
    if body.verdict is None:
        raise _wrong("verdict", "is missing", "give the outcome: happened, did_not or fail")
    if body.verdict != "happened" and body.receipt is not None:
        raise _wrong("receipt", "is only for calls that happened", "leave it out")
    return given


@transaction.atomic
def start(batch_id: UUID, *, by: Actor, held: frozenset[str], justification: str) -> Batch:
    """Start a draft batch. Raises NotFound, Forbidden, IllegalBatchState, JustificationRequired.

    Only its requester may start it, because it acts on their behalf.
    """
    why = justified("start", justification)
    batch = _locked(batch_id, by, held)
    if not is_own(batch, by):
        raise Forbidden(f"Only {batch.by}, on whose behalf it runs, may start it. Create a batch of your own.")
    check_requester(batch.action, held)
    if batch.state != "draft":
        raise IllegalBatchState(batch, "started")
    batch.started_at = database_now()
    _save(batch, "started_at")
    _record("bulk_start", batch, by=by, why=why)
    return batch


@transaction.atomic
def stop(batch_id: UUID, *, by: Actor, held: frozenset[str], justification: str) -> Batch:
    """Stop a batch. Raises NotFound, Forbidden, IllegalBatchState, JustificationRequired.

    When this returns, none of the batch's items is in progress. Finished items aren't undone.
    """
    why = justified("stop", justification)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock({STOP_LOCK})", [str(batch_id)])
    batch = _locked(batch_id, by, held)
    if not can_stop(batch, by, held):
        raise Forbidden(f"Only {batch.by}, who created it, and operators may stop it.")
    if batch.ended_at is not None:
        raise IllegalBatchState(batch, "stopped")
    batch.stopped_at = batch.ended_at = database_now()
    batch.stopped_by, batch.receipt = by.ref, None
    _save(batch, "stopped_at", "stopped_by", "ended_at", "receipt")
    left = batch.items.filter(outcome="").count()
    _record("bulk_stop", batch, by=by, why=why, after={"left": left})
    return batch


def find(batch_id: UUID, *, person: int | None, held: frozenset[str]) -> Batch:
    """Return a batch that the viewer may see: operators and auditors see all, others their own. Raises NotFound."""
    batch = Batch.objects.filter(pk=batch_id).first()
    if batch is None or not (sees_all(held) or (person is not None and batch.person == person)):
        raise NotFound("batch", batch_id)
    return batch


def is_own(batch: Batch, by: Actor) -> bool:
    """Return whether this actor requested the batch: the same account, however it signed in, or the same shell user."""
    return batch.by == by.ref if batch.person is None else batch.person == by.person


def can_stop(batch: Batch, by: Actor, held: frozenset[str]) -> bool:
    """Return whether a person may stop the batch: its requester and operators may, auditors may not."""
    return is_own(batch, by) or OPERATOR in held


def sees_all(held: frozenset[str]) -> bool:
    return bool(held & {OPERATOR, "auditor"})


def _locked(batch_id: UUID, by: Actor, held: frozenset[str]) -> Batch:
    find(batch_id, person=by.person, held=held)
    batch = Batch.objects.select_for_update().get(pk=batch_id)
    if not batch.is_authentic:
        raise NotFound("batch", batch_id)
    return batch


def _save(batch: Batch, *fields: str) -> None:
    batch.seal()
    batch.save(update_fields=[*fields, "code"])


def _record(action: str, batch: Batch, *, by: Actor, why: str, after: dict[str, Any] | None = None) -> None:
    acted(
        action,
        by=by,
        subject=f"{batch.action} {batch.pk}",
        justification=why,
        after={"batch": str(batch.pk), "state": batch.state, **(after or {})},
    )


def digest_of(items: Iterable[tuple[UUID, UUID | None]]) -> str:
    """Return the digest of a selection: its runs in order, each with the id of its wait."""
    parts = (run_id.bytes + (b"" if wait_id is None else wait_id.bytes) for run_id, wait_id in items)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def receipt_digest(receipt: Any) -> str:
    """Return the digest of a receipt. Raises ValueError if it has no canonical form."""
    return hashlib.sha256(canonical(receipt)).hexdigest()


def is_authentic_batch(batch: Batch) -> bool:
    """Return whether the row and its receipt are authentic. Items are not checked."""
    if not batch.is_authentic:
        return False
    digest = (batch.said.get("receipt") or {}).get("sha256", "")
    try:
        return not digest or receipt_digest(batch.receipt) == digest
    except ValueError:
        return False  # a receipt without a canonical form would never have been accepted


def _wrong(field: str, problem: str, fix: str) -> InvalidInput:
    return InvalidInput(f"{field}: {problem}.", errors=[{"field": field, "problem": problem, "fix": fix}])
