"""Read the facts for judging who may decide, in one statement, and convert them for records.

With `locked`, the facts can't change before the transaction ends: a removed role, a lower limit or a revoked deputy
applies from its commit on.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection

from approvals.models import Approval, Decision, Delegation, Escalation
from approvals.policy import (
    NOT_AUTHENTIC,
    VERDICT_TEXTS,
    Authority,
    Cap,
    Deputyship,
    Facts,
    Member,
    QuestionAmount,
    QueueFacts,
    Sum,
)
from approvals.queue_models import Deputy, Limit, Queue
from approvals.queues.changed import CHANGED
from ledger.accounts import ACCOUNT
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.protected import is_authentic
from ledger.rows import moment_in, row_of
from ledger.web.roles import AUDITOR, is_role
from runs.engine.gating.fields import Amount, amount_in
from runs.engine.gating.proof import threshold_in
from runs.models import Run
from runs.services.authority import own_act

_HOLD_QUEUE = "SELECT id FROM approvals_queue WHERE name = %s FOR SHARE"
_HOLD_DEPUTIES = "SELECT principal FROM approvals_deputy WHERE deputy = %s AND revoked_at IS NULL FOR SHARE"
_HOLD_HANDED = "SELECT principal FROM approvals_delegation WHERE approval_id = %s AND deputy = %s FOR SHARE"
_HOLD_ACCOUNTS = "SELECT id FROM auth_user WHERE id = ANY(%s) ORDER BY id FOR SHARE"
_HOLD_ROLES = "SELECT id FROM auth_user_groups WHERE user_id = ANY(%s) ORDER BY id FOR SHARE"
_ACCOUNT = f"""json_build_object('proof', {ACCOUNT.proof_sql("u")},
    'name', u.username, 'person', u.id, 'is_active', u.is_active, 'roles', ARRAY(
    SELECT g.name FROM auth_group g JOIN auth_user_groups m ON m.group_id = g.id WHERE m.user_id = u.id))"""
# Finds who has voted in the case, or has approved the same call at another queue that is asked about it.
_SEATS = """SELECT s.person, s.decision_id FROM approvals_seat s WHERE s.case_id = {case}
    UNION SELECT s.person, s.decision_id FROM approvals_approval this JOIN runs_wait here ON here.id = this.wait_id
        JOIN runs_wait w ON w.run_id = here.run_id AND w.attempt = here.attempt
            AND w.slot IN (here.slot, here.detail ->> 'brought')
        JOIN approvals_approval a ON a.wait_id = w.id AND a.state = 'approved' AND a.queue <> this.queue
        JOIN approvals_decision d ON d.approval_id = a.id AND d.verdict = 'approve'
        JOIN approvals_seat s ON s.decision_id = d.id
    WHERE this.id = {approval}"""
# SQL value: {queue} is the queue's name, {case} the first stage's question, {approval} this one; its parameter is the
# account that wants to decide. It includes all current deputyships and, for messages, the latest of those that have
# ended.
FACTS = f"""(SELECT json_build_object('now', clock_timestamp(),
    'queue', (SELECT to_json(q)::text FROM approvals_queue q WHERE q.name = {{queue}}),
    'limits', (SELECT coalesce(json_agg(to_json(l)::text), '[]') FROM (
                   SELECT DISTINCT ON (l.person) l.* FROM approvals_limit l JOIN approvals_queue q ON q.id = l.queue_id
                   WHERE q.name = {{queue}}
                   ORDER BY l.person, l.ended_at IS NULL DESC, l.set_at DESC, l.id DESC) l),
    'seats', (SELECT coalesce(json_agg(json_build_array(
                  s.person, d.verdict, d.at, a.queue, d.person, to_json(d)::text)), '[]')
              FROM ({_SEATS}) s JOIN approvals_decision d ON d.id = s.decision_id
              JOIN approvals_approval a ON a.id = d.approval_id),
    'changed', {CHANGED},
    'who', (SELECT {_ACCOUNT} FROM auth_user u WHERE u.id = me.id),
    'deputies', (SELECT coalesce(json_agg(json_build_object('row', to_json(d)::text, 'whom', (
                     SELECT {_ACCOUNT} FROM auth_user u WHERE u.id = d.principal),
                     'changed', CASE WHEN d.is_now THEN (SELECT {CHANGED} FROM (SELECT d.principal AS id) AS me) END
                     )), '[]')
                 FROM (SELECT d.*, row_number() OVER (ORDER BY d.ends_at DESC) AS nth,
                           d.revoked_at IS NULL AND d.starts_at <= clock_timestamp() AND d.ends_at > clock_timestamp()
                           AS is_now
                       FROM approvals_deputy d LEFT JOIN approvals_queue q ON q.id = d.queue_id
                       WHERE d.deputy = me.id AND (q.name = {{queue}} OR d.queue_id IS NULL)) d
                 WHERE d.is_now OR d.nth <= 20),
    'handed', (SELECT coalesce(json_agg(json_build_object('row', to_json(d)::text, 'whom', (
                   SELECT {_ACCOUNT} FROM auth_user u WHERE u.id = d.principal),
                   'changed', (SELECT {CHANGED} FROM (SELECT d.principal AS id) AS me))), '[]')
               FROM approvals_delegation d WHERE d.approval_id = {{approval}} AND d.deputy = me.id))::text
    FROM (SELECT %s::bigint AS id) AS me)"""
_BY_NAME = f"""SELECT {FACTS.format(queue="asked.name", case="asked.of", approval="asked.id")}
               FROM (SELECT %s::text AS name, %s::uuid AS of, %s::uuid AS id) AS asked"""


def asked_in(approval: Approval) -> QuestionAmount:
    plan = approval.planned()
    amount = "its plan can't be read" if plan is None else amount_in(plan)
    return QuestionAmount(Sum(amount.value, amount.currency) if isinstance(amount, Amount) else amount)


def facts_of(approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, locked: bool = False) -> Facts:
    """Return all facts about the actor and the queues.

    `held` are the roles of an actor without an account. If `run` is None, the actor's part in the run is not checked.
    """
    first = _facts_at(approval.queue, approval, run, by, held, locked=locked)
    return replace(first, also=also(approval, run, by, held, locked=locked))


def also(
    approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, locked: bool = False
) -> tuple[Facts, ...]:
    """Return the facts at each queue with an authentic escalation."""
    if not approval.escalated_to:
        return ()
    rows = Escalation.objects.filter(approval=approval.pk).order_by("n")
    return tuple(
        _facts_at(row.queue, approval, run, by, held, locked=locked)
        for row in rows
        if row.is_authentic and row.queue != approval.queue
    )


def _facts_at(
    queue: str, approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, locked: bool
) -> Facts:
    if locked:
        _hold(queue, approval, by.person)
    with connection.cursor() as cursor:
        cursor.execute(_BY_NAME, [by.person, queue, approval.case_id or approval.id, approval.id])
        return facts_in(cursor.fetchone()[0], approval, run, by, held, at=queue)


def facts_in(text: str, approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, at: str = "") -> Facts:
    """Convert the result of FACTS. `at` is the queue, if it is not the first one."""
    read = json.loads(text, parse_float=Decimal, parse_int=int)
    now = datetime.fromisoformat(read["now"])
    queue = None if read["queue"] is None else row_of(Queue, read["queue"])
    # A limit whose end was forged still applies, and prevents approval.
    limits = [row_of(Limit, row) for row in read["limits"]]
    caps = {limit.person: _cap(limit) for limit in limits if limit.ended_at is None or not limit.is_authentic}
    role = "" if queue is None else queue.role
    pairs = [(row_of(Deputy, each["row"]), each["whom"], _set_up(each["changed"])) for each in read["deputies"]]
    words = _words(read["seats"])
    handed = [(row_of(Delegation, each["row"]), each["whom"], _set_up(each["changed"])) for each in read["handed"]]
    made = [_for_all(row, _member(whom, row.principal, caps, words).having(changed)) for row, whom, changed in pairs]
    made += [_for_one(row, _member(whom, row.principal, caps, words).having(changed)) for row, whom, changed in handed]
    deputyships = [_deputyship(each, run, role, now) for each in made]
    who = Member(by.name, None, held) if by.person is None else _member(read["who"], by.person, caps, words)
    if run is not None and (role in who.roles or any(each.is_now(now) for each in deputyships)):
        who = who.having(_set_up(read["changed"]) or own_act(run, by.person, by.name))
    return Facts(
        queue=None if queue is None else _queue(queue, caps.get(None)),
        name=at or approval.queue,
        who=who,
        now=now,
        deputyships=deputyships,
        asked=asked_in(approval),
    )


def went_further(run_ids: Collection[UUID]) -> dict[UUID, set[str]]:
    """Return the queues to which questions of these runs were escalated, by authentic rows."""
    found: dict[UUID, set[str]] = {run_id: set() for run_id in run_ids}
    for row in Escalation.objects.filter(run_id__in=list(run_ids)):
        found[row.run_id] |= {row.queue} if row.is_authentic else set()
    return found


def role_held(queue: str) -> str | None:
    """Return a queue's role, share-locked; None without such a queue. Raises Forbidden if the row is forged."""
    row = next(iter(Queue.objects.raw("SELECT * FROM approvals_queue WHERE name = %s FOR SHARE", [queue])), None)
    if row is None or row.state == Queue.State.REMOVED:
        return None
    if not row.is_authentic:
        raise Forbidden(NOT_AUTHENTIC.format(queue=row.name, what="acts as a member of its role"))
    return row.role


def _hold(queue: str, approval: Approval, person: int | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_HOLD_QUEUE, [queue])
        if person is None:
            return
        cursor.execute(_HOLD_DEPUTIES, [person])
        principals = {principal for (principal,) in cursor.fetchall()}
        cursor.execute(_HOLD_HANDED, [approval.pk, person])
        people = sorted({person, *principals, *(principal for (principal,) in cursor.fetchall())})
        cursor.execute(_HOLD_ACCOUNTS, [people])
        cursor.execute(_HOLD_ROLES, [people])


def _for_all(row: Deputy, whom: Member) -> Deputyship:
    return Deputyship(row.pk, whom, row.starts_at, row.ends_at, row.revoked_at is not None, row.is_authentic)


def _for_one(row: Delegation, whom: Member) -> Deputyship:
    ends = datetime.max.replace(tzinfo=UTC)
    return Deputyship(row.pk, whom, row.made_at, ends, row.ended_at is not None, row.is_authentic, is_of_one=True)


def _set_up(changed: str | None) -> str | None:
    """Return why a person may not decide because they changed who decides; None if they didn't."""
    return f"changed the members of this role at {_moment(changed)}, after it was requested" if changed else None


def _deputyship(made: Deputyship, run: Run | None, role: str, now: datetime) -> Deputyship:
    whom = made.principal
    if run is not None and made.is_now(now) and role in whom.roles:
        whom = whom.having(whom.own_act or own_act(run, whom.person, whom.name))
    return replace(made, principal=whom)


def _member(user: dict[str, Any] | None, person: int, caps: dict[int | None, Cap], fields: dict[int, str]) -> Member:
    if user is None:
        return Member(f"account {person}", person, is_active=False)
    if not is_authentic(user["proof"]):
        return Member(user["name"], person, is_authentic=False, may_act=False)
    roles = frozenset(name for name in user["roles"] if is_role(name))
    may_act = bool(roles - {AUDITOR})
    return Member(
        user["name"], person, roles, user["is_active"], caps.get(person), said=fields.get(person), may_act=may_act
    )


def _words(seats: list[list[Any]]) -> dict[int, str]:
    return {seat[0]: _word(*seat[:-1], is_ours=row_of(Decision, seat[-1]).is_authentic) for seat in seats}


def _word(person: int, verdict: str, at: str, queue: str, by: int | None, *, is_ours: bool) -> str:
    """Return a text about a person's vote, to be put after their name.
    A forged vote counts too: the person can't vote again."""
    means = "" if by == person else ", through a deputy or on someone's behalf,"
    whose = "" if is_ours else ", according to a row that this installation did not write"
    return f"{VERDICT_TEXTS.get(verdict, verdict)} this{means} at {_moment(at)} for {queue}{whose}"


def _moment(at: str) -> str:
    return f"{moment_in(at):%Y-%m-%d %H:%M:%S} UTC"


def _queue(row: Queue, cap: Cap | None) -> QueueFacts:
    return QueueFacts(
        row.name,
        row.role,
        is_open=row.state == Queue.State.OPEN,
        is_removed=row.state == Queue.State.REMOVED,
        needs_amount=row.needs_amount,
        cap=cap,
        is_authentic=row.is_authentic,
        threshold=threshold_in(row.proof) if row.is_authentic else None,
        reasons=tuple(row.reasons or ()) if row.is_authentic else (),
        again=row.again if row.is_authentic else None,
    )


def _cap(row: Limit) -> Cap:
    most = None if row.most is None else Sum(row.most, row.currency)
    return Cap(most, "role" if row.person is None else "person", row.is_authentic)


def recorded_authority(authority: Authority, amount: QuestionAmount) -> dict[str, Any] | None:
    """Return the authority as recorded with a decision; None for the person's own role without a limit."""
    deputy = authority.deputyship
    fields: dict[str, Any] = {"queue": authority.queue} if authority.queue else {}
    if deputy is not None:
        by_what = "delegation" if deputy.is_of_one else "deputy"
        fields["deputy_of"] = {"name": deputy.principal.name, "person": deputy.principal.person, by_what: deputy.id}
    caps = [cap for cap in (authority.cap, authority.deputy_cap) if cap is not None]
    if caps:
        fields["limits"] = [
            {"of": cap.of}
            if cap.most is None
            else {"of": cap.of, "most": format(cap.most.value, "f"), "currency": cap.most.currency}
            for cap in caps
        ]
    if caps and isinstance(amount.amount, Sum):
        fields["amount"] = {"value": format(amount.amount.value, "f"), "currency": amount.amount.currency}
    return fields or None
