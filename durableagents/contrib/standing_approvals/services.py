"""Gives standing approvals with a decision, and revokes them. Each act is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from django.db import connection, transaction
from pydantic import Field

from approvals.bodies import MAX_TIMES, AgainBody
from approvals.models import Approval
from approvals.policy import Facts, No, Sum, in_ones_own_right
from approvals.policy import QuestionAmount as About
from approvals.queue_models import Queue
from approvals.queues.acts import Most, snapshot, store, unmoved
from approvals.queues.standing import facts_of, role_held
from approvals.queues.who import PERMISSION, Unchanged, as_admin, wrong
from approvals.services import decide, locked_question, require_standing
from durableagents.contrib.standing_approvals.models import StandingEnd, StandingGrant
from durableagents.contrib.standing_approvals.reading import USED, StandingApproval, lock_grant, others_of
from durableagents.contrib.standing_approvals.terms import MAX_DAYS, Bounds, SameCall, bounds_in, read_same_call
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import agreed_to, two_person
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from ledger.models import ActRecord
from ledger.web.bodies import NoFlag
from ledger.web.roles import OPERATOR
from runs.engine.gating.stages import APPROVE
from runs.services.bodies import SteerBody


class BoundsBody(SteerBody):
    """Limits of standing approvals at a queue: `times` calls, `days`, and a total `sum` in the queue's currency.

    If `sum` is empty, the limit is the amount that the person may approve at once. Without `times`, no standing
    approval may be given."""

    times: Annotated[int, Field(strict=False, ge=0, le=MAX_TIMES), NoFlag] = Field(
        default=0, description="Number of calls that a standing approval may cover; 0: none may be given."
    )
    days: Annotated[int, Field(strict=False, ge=0, le=MAX_DAYS), NoFlag] = Field(
        default=0, description="Number of days that one standing approval may last."
    )
    sum: Most | None = Field(
        default=None,
        description="Total amount in the queue's currency; null: the amount that its giver may approve.",
    )


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def set_limits(name: str, body: BoundsBody, *, seen: str | None = None, by: Actor) -> Queue:
    """Set the limits of standing approvals at a queue; without `times`, none may be given. Existing standing approvals
    stay in force.

    Raises InvalidInput with the wrong field, Moved, NotFound, Forbidden, JustificationRequired."""
    by, why = as_admin(by), justified("queue_grants", body.justification)
    queue = unmoved(name, "again", seen)
    if body.times and not body.days:
        raise wrong("days", "must be at least 1 if standing approvals are allowed", "a number of days")
    if not body.times and (body.days or body.sum is not None):
        raise wrong(
            "times", "must be at least 1 if days or a sum are set", "a number of calls, or leave out days and sum"
        )
    before = snapshot(queue)
    queue.again = Bounds(body.times, body.days, body.sum).as_json() if body.times else None
    if snapshot(queue) == before and queue.is_authentic:
        raise Unchanged("times", "change a limit")
    return store("queue_grants", queue, by=by, before=before, why=why)


# Locked until the end of the transaction, so that a concurrent use either precedes this act or sees its outcome.
_HOLD = """
    SELECT w.id FROM runs_wait w JOIN approvals_approval a ON w.id = a.wait_id
    WHERE a.id = ANY(%s::uuid[]) ORDER BY w.id FOR UPDATE OF w"""
# Ends the unused approvals that the standing approval gave.
_LAPSE = f"""
    UPDATE runs_wait w SET grant_expires_at = %s FROM approvals_approval a
    WHERE a.id = ANY(%s::uuid[]) AND w.id = a.wait_id AND w.grant_expires_at > %s
    RETURNING NOT ({USED})"""


class GrantOver(DurableAgentsError):
    """The standing approval has already ended, so it can't be revoked."""

    status, code, title = 409, "illegal-state", "Already ended"


_OF_HOW_MUCH = "“Total amount”"  # the label of the field on the case's page


@transaction.atomic
def approve_again(
    approval_id: UUID,
    *,
    plan_hash: str,
    justification: str,
    by: Actor,
    again: AgainBody,
    stage: int | None = None,
    typed: Mapping[str, str] | None = None,
) -> Approval:
    """Approve a question, and give a standing approval with the times, total amount and end in `again`.

    The person must decide by a role of their own. The standing approval must be within the queue's limits, and its
    total within the amount that the person may approve at once. Otherwise it works like `services.decide`. Raises the
    errors of `services.decide`, and InvalidInput with the wrong field; then nothing is changed."""
    unlocked = Approval.objects.filter(pk=approval_id).first()
    if unlocked is None:
        raise NotFound("approval", approval_id)
    try:
        same_call = read_same_call(bytes(unlocked.plan))
    except ValueError as error:
        raise wrong("again", f"can't be: {error}", "approve this call only") from None
    sum_ = _sum(same_call, again)
    fields = {
        "times": again.times,
        "until": again.until.isoformat(),
        "scope": again.scope,
        **({} if sum_ is None else {"sum": format(sum_.value, "f"), "currency": sum_.currency}),
    }
    facts = _locked_facts(unlocked, by)
    require_standing(unlocked, facts, by)
    _check(facts, again, sum_)
    _check_who_set_them(unlocked, by)
    _check_with_others(facts, again, sum_, others_of(same_call.same, by.person))
    approval = decide(
        approval_id,
        verdict=APPROVE,
        plan_hash=plan_hash,
        justification=justification,
        by=by,
        stage=stage,
        typed=typed,
        extra_terms={"again": fields},
    )
    row = _given(approval, same_call, again, sum_, justified("standing_grant", justification), by, approval.decided_at)
    acted(
        "standing_grant",
        by=by,
        subject=_subject(row),
        queue=row.queue,
        justification=row.reason,
        after=grant_snapshot(row),
        at=row.at,
    )
    return approval


def _sum(same_call: SameCall, again: AgainBody) -> Sum | None:
    """Return the total amount of all calls together. Raises InvalidInput."""
    if same_call.amount is None and again.sum is not None:
        raise wrong("again.sum", "doesn't apply: this call has no amount", "leave it out", _OF_HOW_MUCH)
    if same_call.amount is None:
        return None
    if again.sum is None:
        fix = "the highest total amount of all calls"
        raise wrong("again.sum", "is missing: this call has an amount", fix, _OF_HOW_MUCH)
    return Sum(again.sum, same_call.amount.currency)


def _locked_facts(unlocked: Approval, by: Actor) -> Facts:
    """Lock the question and return its facts. Raises AlreadyDecided, RecordDamaged."""
    _, run, _, approval = locked_question(unlocked, by)
    return facts_of(approval, run, by, frozenset([by.role]), locked=True)


def _check(facts: Facts, again: AgainBody, sum_: Sum | None) -> None:
    """Check that the person may give the standing approval, and that it is within the limits.

    Raises Forbidden, InvalidInput.
    """
    assert facts.queue is not None
    if facts.who.person is None:
        raise Forbidden("Only a person with an account can give a standing approval.")
    if isinstance(no := in_ones_own_right(facts), No):
        raise Forbidden(f"Only a person who may approve this in their own role can give a standing approval. {no.why}")
    bounds = bounds_in(facts.queue.again)
    if bounds is None:
        fix = "approve this call only, or ask an administrator to allow them"
        raise wrong("again", f"isn't possible: queue {facts.queue.name} does not allow standing approvals", fix)
    if again.times > bounds.times:
        problem = f"is more than {bounds.times}, the limit of queue {facts.queue.name}"
        raise wrong("again.times", problem, "fewer", "“Number of calls”")
    latest = facts.now + timedelta(days=bounds.days)
    if not facts.now < again.until <= latest:
        last = f"{latest:%Y-%m-%d %H:%M} UTC"
        problem = "has passed" if again.until <= facts.now else f"is after {last}, the latest that this queue allows"
        fix = f"a time until {last}, {bounds.days} days from now"
        raise wrong("again.until", problem, fix, "“Expires”")
    if sum_ is None:
        return
    if bounds.most is not None and sum_.value > bounds.most:
        most = Sum(bounds.most, sum_.currency)
        raise wrong("again.sum", f"is more than {most}, the limit of queue {facts.queue.name}", "less", _OF_HOW_MUCH)
    no = in_ones_own_right(replace(facts, asked=About(sum_)))
    if isinstance(no, No):
        raise wrong("again.sum", f"is more than you may approve at once. {no.why}", "less", _OF_HOW_MUCH)


def _check_who_set_them(approval: Approval, by: Actor) -> None:
    """Check that the person hasn't set or confirmed the limits since the question was opened. Raises Forbidden."""
    own = ActRecord.objects.filter(
        action="queue_grants", queue=approval.queue, person=by.person, at__gte=approval.opened_at
    )
    if own.exists() or ("queue_grants", approval.queue) in agreed_to(by.person, approval.opened_at):
        why = f"You changed the limits of standing approvals in {approval.queue} after this was requested"
        raise Forbidden(f"{why}. Approve only this call, or ask another person to give a standing approval.")


def _check_with_others(facts: Facts, again: AgainBody, sum_: Sum | None, others: Sequence[StandingApproval]) -> None:
    """Check the limits over all usable standing approvals of the person for identical calls.

    Raises InvalidInput with the amount that is left."""
    bounds = bounds_in(facts.queue.again) if facts.queue is not None else None
    assert bounds is not None
    if not others:
        return
    after_others = (
        f"after your other standing approvals of the same call ({', '.join(str(each.row.pk) for each in others)})"
    )
    fix = "give a lower value, or revoke one of them first"
    times = bounds.times - sum(each.row.count - len(each.uses) for each in others)
    if again.times > times:
        raise wrong("again.times", f"is more than the {max(times, 0)} left {after_others}", fix, "“Number of calls”")
    if sum_ is None:
        return
    of_it = [each for each in others if each.row.currency == sum_.currency]
    open_ = sum(((each.row.most or Decimal(0)) - each.spent for each in of_it), Decimal(0))
    if bounds.most is not None and sum_.value + open_ > bounds.most:
        left = Sum(max(bounds.most - open_, Decimal(0)), sum_.currency)
        raise wrong("again.sum", f"is more than the {left} left {after_others}", fix, _OF_HOW_MUCH)
    no = in_ones_own_right(replace(facts, asked=About(Sum(sum_.value + open_, sum_.currency))))
    if isinstance(no, No):
        raise wrong("again.sum", f"is more than you may approve at once {after_others}. {no.why}", fix, _OF_HOW_MUCH)


def _given(
    approval: Approval,
    same_call: SameCall,
    again: AgainBody,
    sum_: Sum | None,
    why: str,
    by: Actor,
    at: datetime | None,
) -> StandingGrant:
    assert by.person is not None and at is not None
    if StandingGrant.objects.filter(approval=approval).exists():
        fix = "approve this call only, and inform an operator"
        raise wrong("again", "already exists for this request, but this installation didn't write it", fix)
    row = StandingGrant(
        approval=approval,
        run_id=approval.run_id,
        queue=approval.queue,
        tool=same_call.tool,
        agent=same_call.agent,
        is_of_run=again.scope == "run",
        same=same_call.same,
        fields=same_call.fields,
        count=again.times,
        most=None if sum_ is None else sum_.value,
        currency="" if sum_ is None else sum_.currency,
        until=again.until,
        person=by.person,
        by=by.ref,
        role=by.role,
        reason=why,
        at=at,
    )
    row.seal()
    row.save(force_insert=True)
    return row


@transaction.atomic
def revoke(grant_id: int, *, justification: str, by: Actor, roles: Iterable[str]) -> StandingApproval:
    """Revoke a standing approval.

    The giver, a decider of the queue, an operator or an administrator may do so. Unused approvals lapse; calls that
    were already sent are not affected. If a forged revocation exists, it stays in the table, and this act only lets the
    unused approvals lapse. Raises NotFound, Forbidden, GrantOver, JustificationRequired."""
    found = lock_grant(grant_id)
    if found is None:
        raise NotFound("standing grant", grant_id)
    row, by = found.row, _as(found.row, by, frozenset(roles))
    why = justified("standing_revoke", justification)
    end = found.end
    if end is None:
        end = StandingEnd(grant=row, person=by.person, by=by.ref, role=by.role, reason=why, at=found.now)
        end.seal()
        end.save(force_insert=True)
    elif not end.is_authentic and not found.has_unused:
        raise GrantOver("A row that this installation didn't write already revokes it, and it has no unused approvals.")
    elif end.is_authentic:
        raise GrantOver(f"It was revoked by {end.by} at {end.at:%Y-%m-%d %H:%M:%S} UTC.")
    own = [use.approval_id for use in found.uses if use.is_authentic]
    with connection.cursor() as cursor:
        cursor.execute(_HOLD, [own])
        cursor.execute(_LAPSE, [found.now, own, found.now])
        unused = sum(is_unused for (is_unused,) in cursor.fetchall())
    acted(
        "standing_revoke",
        by=by,
        subject=_subject(row),
        queue=row.queue,
        justification=why,
        before={"uses": len(found.uses)},
        after={"lapsed": unused},
        at=found.now,
    )
    return replace(found, end=end)


def _as(row: StandingGrant, by: Actor, roles: frozenset[str]) -> Actor:
    """Return the actor in a role that may revoke the standing approval. Raises Forbidden.

    Deciders may not revoke one if the queue's row is forged."""
    not_authentic: Forbidden | None = None
    try:
        role = role_held(row.queue)
    except Forbidden as forged:
        role, not_authentic = None, forged
    if role is not None and role in roles:
        return replace(by, role=role)
    if OPERATOR in roles:
        return replace(by, role=OPERATOR)
    if by.person is not None and by.person == row.person:
        return replace(by, role=row.role)
    try:
        return as_admin(by, "revoke a standing approval of a queue where they don't decide")
    except Forbidden as no:
        raise not_authentic or no from None


def grant_snapshot(row: StandingGrant) -> dict[str, Any]:
    """Return the standing approval's values for an act's record."""
    return {
        "approval": str(row.approval_id),
        "tool": row.tool,
        "agent": row.agent,
        "fields": row.fields,
        "scope": "run" if row.is_of_run else "agent",
        "times": row.count,
        "currency": row.currency,
        "sum": None if row.most is None else format(row.most, "f"),
        "until": row.until.isoformat(),
    }


def _subject(row: StandingGrant) -> str:
    return f"standing grant {row.pk}"
