"""Uses standing approvals to answer approval requests for identical calls.

Such an answer counts as the giver's own decision, and depends on their current role, limit and part in the run.
Everything else is left to people."""

# The sweeper handles each question in a transaction of its own, under the locks of the run and the standing approval. A
# concurrent decision either comes first or finds the question decided, and a standing approval is never overused. It
# doesn't answer questions that the giver couldn't approve, that were asked or tried before, or that require more than
# an approval.

from __future__ import annotations

import logging
import time
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals.models import Approval, ApprovalState
from approvals.policy import No, in_ones_own_right
from approvals.queues.standing import facts_of
from approvals.services import decide, locked_question
from approvals.verification import BY_STANDING_APPROVAL
from durableagents.contrib.standing_approvals.models import StandingUse
from durableagents.contrib.standing_approvals.reading import StandingApproval, lock_grant
from durableagents.contrib.standing_approvals.terms import SameCall, read_same_call
from ledger.actors import SWEEPER, Actor
from ledger.errors import DurableAgentsError
from runs.engine.gating.history import HISTORY
from runs.engine.gating.stages import APPROVE
from runs.models import ENDED, Run, Wait
from runs.services.command import is_busy

log = logging.getLogger("durableagents.standing_approvals")
BATCH = 100
LEFT_SECONDS = 60.0  # a question that was left to people is checked again after this time
_TO_ANSWER = """
    SELECT a.id, a.run_id, g.id FROM approvals_standinggrant g
    JOIN approvals_approval a ON a.same = g.same AND a.state = 'open' AND a.revision = 1 AND a.case_id IS NULL
        AND a.opened_at > g.at
    WHERE g.until > statement_timestamp() AND (NOT g.is_of_run OR g.run_id = a.run_id) AND NOT (a.id = ANY(%s::uuid[]))
      AND NOT EXISTS (SELECT 1 FROM approvals_standingend e WHERE e.grant_id = g.id)
      AND (SELECT count(*) FROM approvals_standinguse u WHERE u.grant_id = g.id) < g.count
    ORDER BY a.opened_at, g.id LIMIT %s"""
# Questions left to people, with the time until they are checked again. The key includes the standing approval, because
# two for the same call may differ.
_left: dict[tuple[UUID, int], float] = {}


class LeftToPeople(Exception):
    """The standing approval does not answer this question."""


def answer_questions(excluding: list[UUID], until: float) -> list[tuple[UUID, UUID, Exception]]:
    """Answer open questions with standing approvals, except the questions in `excluding`.

    Returns the failures: the question, the run and the error of each. The cost is proportional to the number of open
    questions about identical calls."""
    now = time.monotonic()
    for key in [key for key, till in _left.items() if till <= now]:
        del _left[key]
    with connection.cursor() as cursor:
        cursor.execute(_TO_ANSWER, [excluding, BATCH + len(_left)])
        rows = [row for row in cursor.fetchall() if (row[0], row[2]) not in _left]
    troubles = []
    for approval_id, run_id, grant_id in rows[:BATCH]:
        if time.monotonic() >= until:
            break
        try:
            _answer(approval_id, run_id, grant_id)
        except (LeftToPeople, DurableAgentsError) as no:
            _left[approval_id, grant_id] = time.monotonic() + LEFT_SECONDS
            log.info("approval %s is left to people, not to standing grant %s: %s", approval_id, grant_id, no)
        except Exception as error:
            # The failure of one question must not block others, so it is returned to the sweeper.
            log.exception("run %s: standing grant %s can't answer approval %s", run_id, grant_id, approval_id)
            troubles.append((approval_id, run_id, error))
    return troubles


@transaction.atomic
def _answer(approval_id: UUID, run_id: UUID, grant_id: int) -> None:
    """Approve on behalf of the giver and record the use.

    Raises LeftToPeople with the reason if the standing approval can't be used.
    """
    if is_busy(run_id):  # doesn't wait for a process that holds the run
        return
    unlocked = Approval.objects.get(pk=approval_id)
    if unlocked.state != ApprovalState.OPEN:
        return
    _, run, wait, approval = locked_question(unlocked, SWEEPER)
    found = lock_grant(grant_id)
    if found is None:
        return
    same_call = _same_call(approval, run, wait)
    if no := found.is_over or _not_the_same(found, approval, same_call) or found.covers(same_call.amount):
        raise LeftToPeople(f"{found.row}: {no}.")
    row, n = found.row, len(found.uses) + 1
    giver = User.objects.filter(pk=row.person).first()
    if giver is None:
        raise LeftToPeople(f"{row}: the account of its giver was deleted.")
    by = Actor("user", giver.get_username(), role=row.role, auth=BY_STANDING_APPROVAL, person=row.person)
    may = in_ones_own_right(facts_of(approval, run, by, frozenset([by.role]), locked=True))
    if isinstance(may, No):
        raise LeftToPeople(f"{row}: {may.why}")
    decided = decide(
        approval_id,
        verdict=APPROVE,
        plan_hash=approval.plan_hash,
        justification=row.reason,
        by=by,
        extra_terms={"grant": row.pk, "use": n},
    )
    use = StandingUse(
        grant=row,
        n=n,
        approval=decided,
        run_id=run_id,
        at=decided.decided_at or found.now,
        amount=None if same_call.amount is None else same_call.amount.value,
    )
    use.seal()
    use.save(force_insert=True)


def _same_call(approval: Approval, run: Run, wait: Wait) -> SameCall:
    """Return the call, if this is the first question about it. Raises LeftToPeople."""
    try:
        same_call = read_same_call(bytes(approval.plan))
    except ValueError as error:
        raise LeftToPeople(f"It can't have a standing approval: {error}.") from None
    if not isinstance(approval.evidence, list):
        raise LeftToPeople("Its details can't be read.")
    is_told_of = any((each.get("label"), each.get("source")) == HISTORY for each in approval.evidence)
    if wait.n or wait.attempt or approval.revision != 1 or is_told_of:
        raise LeftToPeople("It was requested or tried before.")
    if _was_refused(approval, same_call):
        raise LeftToPeople("The same request was rejected, or expired, earlier in this run.")
    if run.state in ENDED or run.forked_from is not None:
        raise LeftToPeople("Its run is a fork, or has ended.")
    return same_call


def _was_refused(approval: Approval, same_call: SameCall) -> bool:
    """Return whether an identical call was rejected or expired earlier in this run, according to the plans."""
    no = [ApprovalState.REJECTED, ApprovalState.EXPIRED]
    before = Approval.objects.filter(run_id=approval.run_id, tool=approval.tool, queue=approval.queue, state__in=no)
    for earlier in before.only("plan"):
        try:
            if read_same_call(bytes(earlier.plan)).same == same_call.same:
                return True
        except ValueError:  # without a readable plan, the call is not identical
            continue
    return False


def _not_the_same(found: StandingApproval, approval: Approval, same_call: SameCall) -> str:
    """Return why the standing approval doesn't apply; empty if it does.

    The plan is compared, because the column used to find standing approvals may be forged."""
    row = found.row
    if not row.is_about(approval.queue, same_call):
        return "it is for another call"
    if row.is_of_run and row.run_id != approval.run_id:
        return "it is for another run"
    return "" if approval.opened_at > row.at else "it was requested before the standing approval was given"
