"""Questions of nodes to people: who may answer, validation, and the first answer, which wins.
For locks and transactions see `command`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.fields.json import KT

from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, IllegalTransition, InvalidInput, NotFound, RecordDamaged
from ledger.web.roles import OPERATOR, is_role
from runs import features
from runs.engine.errors import JournalBroken
from runs.engine.steps.forks import AGAIN
from runs.journal.asked.queues import QUEUES
from runs.models import ENDED, Run, Wait
from runs.services import authority
from runs.services.answer_words import misfits
from runs.services.calls import asked_by
from runs.services.command import journal, locked, resolve, snapshot, wake
from runs.services.halted_time import is_past

_ENDINGS = {
    "timed_out": "Its deadline passed",
    "withdrawn": "The run ended before anybody answered",
    "answered": "It was answered",
}


class QuestionClosed(DurableAgentsError):
    """The question was answered or withdrawn, or its deadline passed."""

    status, code, title = 409, "question-closed", "The question is closed"

    def __init__(self, wait: Wait) -> None:
        at = wait.resolved_at or wait.deadline
        how = _ENDINGS.get(wait.resolution or "timed_out", "It was settled")
        by = wait.resolved_by if wait.resolution == "answered" else None
        who = f" by {by}" if by else ""
        text = " The first answer stands." if by else ""
        super().__init__(
            f"{how}{who} at {at:%Y-%m-%d %H:%M:%S} UTC.{text}",
            state=wait.resolution or "timed_out",
            answered_by=by,
            at=f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        )


def roles_for(wait: Wait) -> tuple[str, ...]:
    """Return the roles that may answer: operators, and the named role or the one in charge of the named queue."""
    of = str(wait.detail.get("of", "")) if isinstance(wait.detail, dict) else ""
    named = QUEUES.get(of, of)
    return (named, OPERATOR) if is_role(named) and named != OPERATOR else (OPERATOR,)


def may_answer(wait: Wait, held: Iterable[str]) -> bool:
    return bool(set(roles_for(wait)) & set(held))


def role_to_answer(wait: Wait, held: Iterable[str]) -> str:
    """Return the role under which someone answers. Raises Forbidden."""
    allowed, held = roles_for(wait), frozenset(held)
    role = next((role for role in allowed if role in held), None)
    if role is None:
        raise Forbidden(f"Only {' or '.join(allowed)} may answer this.")
    return role


def open_for(held: frozenset[str]) -> QuerySet[Wait]:
    """Return the open questions that these roles may answer, by deadline.
    If none of the roles is in charge of a queue, return all open questions."""
    questions = Wait.objects.filter(kind=Wait.Kind.INPUT, resolved_at__isnull=True).exclude(run__state__in=ENDED)
    if OPERATOR not in held and any(role in held for role in QUEUES.values()):
        named = {role for role in held if is_role(role)} | {queue for queue, role in QUEUES.items() if role in held}
        questions = questions.annotate(of=KT("detail__of")).filter(of__in=sorted(named))
    return questions.order_by("deadline", "id")


def question(run_id: UUID, wait_id: UUID) -> Wait:
    """Return a question of a run. Raises NotFound, and RecordDamaged if it is unreadable."""
    wait = Wait.objects.filter(pk=wait_id, run_id=run_id, kind=Wait.Kind.INPUT).first()
    if wait is None:
        raise NotFound("question", wait_id)
    if not isinstance(wait.detail, dict) or not isinstance(wait.detail.get("schema"), dict):
        raise RecordDamaged(run_id, "a readable question")
    return wait


def _attest_repeat(run: Run, wait_opened: e.WaitOpened, given: Any, now: datetime) -> str:
    """If an answer lets a fork repeat a call, return what it confirms about the call's sender.
    Raises IllegalTransition."""
    if (attest := features.only(lambda each: each.attest_repeat)) is not None:
        return attest(run, wait_opened, given, now)
    if given.get("decision") == AGAIN:
        raise IllegalTransition("do it again", str(run.state), "The app that checks such answers is not installed.")
    return ""


@transaction.atomic
def answer(run_id: UUID, wait_id: UUID, given: Any, *, by: Actor, justification: str = "") -> Run:
    """Answer a question; the first answer wins. Raises NotFound, Forbidden, QuestionClosed, InvalidInput,
    RecordDamaged, and IllegalTransition if a fork would repeat a call that may still be in progress."""
    asks = question(run_id, wait_id)
    allowed = roles_for(asks)
    if by.role not in allowed and not authority.is_nobodys(authority.asked_of(asks.detail)):
        raise Forbidden(f"Only {' or '.join(allowed)} may answer this; you act as {by.role or 'no role'}.")
    head, run = locked(run_id, under=by)
    wait = Wait.objects.select_for_update().get(pk=wait_id)
    if by.role != OPERATOR:
        authority.must_be_in_charge(by.role, [str(wait.detail.get("of", ""))], "answers this")
    before = snapshot(run, head)
    now = database_now()
    if wait.resolved_at is not None or is_past(wait, now):
        raise QuestionClosed(wait)
    on_record = _on_record(wait)
    problems = misfits(wait.detail["schema"], given)
    if problems:
        raise InvalidInput(
            f"The answer does not fit: {problems[0]['field']}: {problems[0]['problem']}.", errors=problems
        )
    gone = _attest_repeat(run, on_record, given, now) if "binds" in wait.detail else ""
    resolve(wait, "answered", by=by.ref, now=now)
    wake(run, now=now)
    payload = {"answer": given} | ({"justification": justification} if justification else {})
    payload |= {"attested": gone} if gone else {}
    event = e.InputAnswered(slot=wait.slot, attempt=wait.attempt, n=wait.n, by=by.ref, role=by.role, payload=payload)
    acted(
        "answer",
        by=by,
        head=head,
        subject=str(wait.detail.get("title", "")),
        queue=str(wait.detail.get("of", "")),
        justification=justification,
        before=before,
        after=snapshot(run, head),
    )
    journal(run.id, event, by=by)
    return run


def _on_record(wait: Wait) -> e.WaitOpened:
    """Return the journal event that asks the question, because the wait's row may be forged.
    Raises RecordDamaged."""
    try:
        requested = asked_by(wait)
    except JournalBroken as broken:
        raise RecordDamaged(wait.run_id, f"an intact journal ({broken})") from broken
    if requested is None:
        raise RecordDamaged(wait.run_id, "the event of this question")
    return requested
