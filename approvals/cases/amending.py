"""Approve with changes: close the question, and open its next revision with a person's arguments.

That person's approval of the new revision counts if they are allowed to give it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from pydantic import ValidationError

from approvals.deadlines import deadlines
from approvals.models import Approval, ApprovalState
from approvals.policy import CHANGED_FIRST, No, judge
from approvals.proofs import KeyCannotProve, NothingProves, ProofNeeded
from approvals.queues.standing import facts_of, recorded_authority
from approvals.sameness import amount_of, call_of
from approvals.services import (
    StalePlan,
    check_deadline,
    check_no_forged_decision,
    check_stage,
    checked_before_locks,
    decide,
    decision_row,
    is_plan_intact,
    locked_question,
    require_standing,
)
from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified
from ledger.clock import database_now
from ledger.codec import decode, unpack
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound, RecordDamaged
from ledger.models import Event
from ledger.web import misfit
from runs.engine.agents import registry
from runs.engine.amending import changes, moved_along
from runs.engine.canonical import canonical, plain
from runs.engine.gate import Question, amend_question
from runs.engine.gating.documents import DOCUMENTS
from runs.engine.gating.fields import closed, editable_in
from runs.engine.gating.stages import is_staged, required_by
from runs.engine.gating.timing import Terms
from runs.engine.tools import Tool
from runs.journal.digests import hasher
from runs.models import Run, Wait
from runs.services.answer_words import misfits
from runs.services.command import journal, open_wait, resolve, snapshot

WITHIN = "arguments"


@dataclass(frozen=True, slots=True)
class Amended:
    """The new revision. `why_open` says why the editor's approval does not count for it."""

    approval: Approval
    why_open: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A person's changed arguments, checked as far as this process can check them."""

    plan: dict[str, Any]
    arguments: dict[str, Any]

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        """Return the old and the new value of each field."""
        return changes(self.plan["arguments"], self.arguments)


def look(approval: Approval, given: Any) -> Wanted:
    """Return the question's arguments with those in `given` replaced.

    Raises InvalidInput for an invalid field, StalePlan for an unreadable plan.
    """
    plan = approval.planned()
    if plan is None or not is_plan_intact(approval):
        raise StalePlan(approval)
    fields = editable_in(plan)["properties"]
    if not fields:
        _refuse("", "can't be changed: its gate names no field that approvers may change", "approve or reject")
    if not isinstance(given, dict):
        _refuse("", "is not an object", f'give the fields that change, such as {{"{next(iter(fields))}": …}}')
    before = plan["arguments"]
    for name in given:
        if name not in before and name not in fields:
            _refuse(name, "is not a field of this call", f"change {', '.join(fields)}")
    after = before | given
    differing = changes(before, after)
    for name in differing:
        if name not in fields:
            _refuse(name, "may not be changed by approvers", f"change {', '.join(fields)} only, or reject it")
    schema = closed(editable_in(plan))
    if wrong := misfits(schema, {name: after[name] for name in fields if name in after}):
        raise _misfit([{**each, "field": each["field"].replace("answer", WITHIN, 1)} for each in wrong])
    after = _by_its_code(approval, before, after, list(fields))
    if not changes(before, after):
        _refuse("", "are the requested arguments", "change a value, or approve it as it is")
    return Wanted(plan, after)


def _refuse(name: str, problem: str, fix: str) -> None:
    raise _misfit([{"field": f"{WITHIN}.{name}" if name else WITHIN, "problem": problem, "fix": fix}])


def _misfit(errors: list[dict[str, str]]) -> InvalidInput:
    first = errors[0]
    return InvalidInput(f"The changes can't be made: {first['field']} {first['problem']}.", errors=errors)


def tool_here(run: Run, name: str) -> Tool | None:
    """Return the tool if this process has the agent's code."""
    try:
        agent = registry.find(run.graph_id)
        return None if agent is None else agent.tool(name)
    except DurableAgentsError:
        return None


def _by_its_code(
    approval: Approval, before: dict[str, Any], arguments: dict[str, Any], fields: list[str]
) -> dict[str, Any]:
    """Return the arguments, validated by the tool's model if this process has it; else the worker validates them
    later."""
    tool = tool_here(approval.run, approval.tool)
    if tool is None:
        return arguments
    try:
        made = tool.input.model_validate(arguments)
        checked, moved = plain(made), moved_along(tool, before, made, fields)
    except ValidationError as error:
        wrong = [
            {
                "field": misfit.path([WITHIN, *each["loc"]]),
                "problem": misfit.problem(each),
                "fix": misfit.fix(each),
            }
            for each in error.errors(include_url=False)[:20]
        ]
        raise _misfit(wrong) from None
    if moved:
        fix = "change only fields that no other value depends on, or reject it"
        what = "depends on it and may not be changed"
        raise _misfit([{"field": f"{WITHIN}.{name}", "problem": what, "fix": fix} for name in moved])
    return arguments | {name: checked[name] for name in fields if name in checked}


@checked_before_locks
@transaction.atomic
def amend(
    approval_id: UUID,
    *,
    plan_hash: str,
    arguments: Any,
    justification: str,
    by: Actor,
    stage: int | None = None,
    typed: Mapping[str, str] | None = None,
) -> Amended:
    """Approve exactly the plan that was read, but with these arguments instead of its own.

    `stage` is the stage that was read, for callers that want it checked; `typed` is the text that the editor typed as
    proof, if approving the new plan requires it. Raises NotFound, Forbidden, JustificationRequired, NotShown, Busy,
    AlreadyDecided, AlreadyVoted, StalePlan, OtherStage, InvalidInput, RecordDamaged; then nothing has changed.
    """
    unlocked = Approval.objects.select_related("run").filter(pk=approval_id).first()
    if unlocked is None:
        raise NotFound("approval", approval_id)
    require_standing(unlocked, facts_of(unlocked, None, by, frozenset([by.role])), by)
    text = justified("amend", justification)
    head, run, wait, approval = locked_question(unlocked, by)
    check_no_forged_decision(approval)
    facts = facts_of(approval, run, by, frozenset([by.role]), locked=True)
    authority, now = require_standing(approval, facts, by), database_now()
    if authority.queue:
        raise Forbidden(CHANGED_FIRST.format(queue=approval.queue))
    check_deadline(approval, wait, now)
    if plan_hash != approval.plan_hash:
        raise StalePlan(approval)
    check_stage(approval, wait, stage)
    wanted = look(approval, arguments)
    question, terms = _question(approval, wait), recorded_authority(authority, facts.asked)
    first = required_by(wanted.plan, approval.queue).stages[0].queue  # the next revision starts at the first stage
    revision = deadlines().revise(approval, wait, first, now)
    amended, new = amend_question(
        str(run.id),
        question,
        wanted.arguments,
        tool=tool_here(run, approval.tool),
        hasher=hasher(),
        by=by.ref,
        role=by.role,
        justification=text,
        deadline=revision.terms.deadline,
        authority=terms,
        terms=revision.terms.said,
    )
    before = snapshot(run, head)
    _close(approval, wait, by, now)
    open_wait(run, new.wait, now=now)
    following = _following(approval, new, revision.terms, now=now)
    journal(run.id, amended, *new.events, *revision.carry(following, new.wait.id), by=by)
    decision = decision_row(approval, "amend", head, before, by=by, justification=text, authority=terms, at=now)
    decision.closes, decision.after = True, snapshot(run, head)
    decision.store()
    return _say_yes(following, run, typed, by=by, text=text)


def _close(approval: Approval, wait: Wait, by: Actor, now: datetime) -> None:
    approval.amend()
    approval.decided_at = now
    approval.save(update_fields=["state", "decided_at"])
    resolve(wait, "amended", by=by.ref, now=now)


def _question(approval: Approval, wait: Wait) -> e.ApprovalRequested:
    """Return the question's event, with the plan as it was hashed. Raises RecordDamaged."""
    rows = Event.objects.filter(run_id=approval.run_id, slot=wait.slot, kind=e.ApprovalRequested.KIND)
    for row in rows.order_by("-seq"):
        event = decode(bytes(row.clear), unpack(row.sealed))
        if isinstance(event, e.ApprovalRequested) and event.approval_id == str(approval.id):
            if event.plan_hash != approval.plan_hash or hasher()(event.payload) != approval.plan_hash:
                break
            return event
    raise RecordDamaged(approval.run_id, "the original question")


def _following(approval: Approval, new: Question, terms: Terms, *, now: datetime) -> Approval:
    plan = canonical(new.plan)
    return Approval.objects.create(
        id=UUID(new.asked.approval_id),
        run_id=approval.run_id,
        wait_id=new.wait.id,
        queue=new.plan["queue"],
        revision=approval.revision + 1,
        previous=approval,
        tool=approval.tool,
        title=approval.title,
        effect=approval.effect,
        rule=new.plan["rule"],
        plan=plan,
        call=call_of(plan),
        amount=amount_of(plan),
        plan_hash=new.asked.plan_hash,
        evidence=approval.evidence,
        documents=new.plan.get(DOCUMENTS, []),
        why=approval.why,
        requested_by=approval.requested_by,
        requester=approval.requester,
        opened_at=now,
        deadline=new.wait.deadline,
        case_id=new.asked.approval_id if is_staged(new.plan) else None,
        timing=terms.said,
        look_at=terms.look_at,
    )


def _say_yes(following: Approval, run: Run, typed: Mapping[str, str] | None, *, by: Actor, text: str) -> Amended:
    """Count the editor's approval of the new revision, whose amount may exceed their limit."""
    found = judge(facts_of(following, run, by, frozenset([by.role]), locked=True), approves=True)
    if isinstance(found, No):
        return Amended(following, found.why)
    try:
        decided = decide(
            following.id, verdict="approve", plan_hash=following.plan_hash, justification=text, by=by, typed=typed
        )
    except (ProofNeeded, KeyCannotProve, NothingProves, InvalidInput, Forbidden) as error:
        # The page of the new revision asks for what is missing.
        return Amended(following, error.detail)
    is_counted = decided.state == ApprovalState.OPEN
    return Amended(decided, "your approval is recorded, but more are needed." if is_counted else "")
