"""The facts by which it is judged who may decide, read from their rows in one statement; and what a record tells of the
standing.

`locked` reads them so that none can change before the reader's transaction ends: a role that is taken, a limit that is
lowered, a deputy who is revoked counts from the moment on which it is committed, and not half way.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from approvals.calendars.models import Escalation
from approvals.calendars.rows import row_of
from approvals.models import Approval
from approvals.policy import Asked, Cap, Deputyship, Facts, Member, QueueFacts, Standing, Sum
from approvals.queue_models import Deputy, Limit, Queue
from ledger.actors import Actor
from ledger.web.roles import is_role
from runs.engine.gate.amounts import Amount, amount_in
from runs.models import Run
from runs.services.authority import own_act

_HOLD_QUEUE = "SELECT id FROM approvals_queue WHERE name = %s FOR SHARE"
_HOLD_DEPUTIES = "SELECT principal FROM approvals_deputy WHERE deputy = %s AND revoked_at IS NULL FOR SHARE"
_HOLD_ACCOUNTS = "SELECT id FROM auth_user WHERE id = ANY(%s) ORDER BY id FOR SHARE"
_HOLD_ROLES = "SELECT id FROM auth_user_groups WHERE user_id = ANY(%s) ORDER BY id FOR SHARE"
_ACCOUNT = """json_build_object('name', u.username, 'person', u.id, 'is_active', u.is_active, 'roles', ARRAY(
    SELECT g.name FROM auth_group g JOIN auth_user_groups m ON m.group_id = g.id WHERE m.user_id = u.id))"""
# As a value in SQL: {queue} is the queue's name; its one parameter the account of who wants to decide. Of the
# deputyships that are not now the last ones come along, for words; all that are now, for they count.
FACTS = f"""(SELECT json_build_object('now', clock_timestamp(),
    'queue', (SELECT to_json(q) FROM approvals_queue q WHERE q.name = {{queue}}),
    'limits', (SELECT coalesce(json_agg(l), '[]') FROM (
                   SELECT DISTINCT ON (l.person) l.* FROM approvals_limit l JOIN approvals_queue q ON q.id = l.queue_id
                   WHERE q.name = {{queue}} ORDER BY l.person, l.set_at DESC, l.id DESC) l),
    'who', (SELECT {_ACCOUNT} FROM auth_user u WHERE u.id = me.id),
    'deputies', (SELECT coalesce(json_agg(json_build_object('row', to_json(d), 'whom', (
                     SELECT {_ACCOUNT} FROM auth_user u WHERE u.id = d.principal))), '[]')
                 FROM (SELECT d.*, row_number() OVER (ORDER BY d.ends_at DESC) AS nth,
                           d.revoked_at IS NULL AND d.starts_at <= clock_timestamp() AND d.ends_at > clock_timestamp()
                           AS is_now
                       FROM approvals_deputy d LEFT JOIN approvals_queue q ON q.id = d.queue_id
                       WHERE d.deputy = me.id AND (q.name = {{queue}} OR d.queue_id IS NULL)) d
                 WHERE d.is_now OR d.nth <= 20))::text
    FROM (SELECT %s::bigint AS id) AS me)"""
_BY_NAME = f"SELECT {FACTS.format(queue='asked.name')} FROM (SELECT %s::text AS name) AS asked"


def asked_in(approval: Approval) -> Asked:
    """What it is about, read from the bytes that its hash covers."""
    try:
        amount = amount_in(json.loads(bytes(approval.plan)))
    except (ValueError, RecursionError):
        amount = "its plan can't be read"
    return Asked(Sum(amount.value, amount.currency) if isinstance(amount, Amount) else amount)


def facts_of(approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, locked: bool = False) -> Facts:
    """Everything about who wants to decide and where. `held` are the roles of an actor without an account. Without the
    run nobody's hand in it is looked for."""
    first = _facts_at(approval.queue, approval, run, by, held, locked=locked)
    return replace(first, also=also(approval, run, by, held, locked=locked))


def also(
    approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, locked: bool = False
) -> tuple[Facts, ...]:
    """The same at each queue that it went to because nobody answered. What is not genuine went nowhere."""
    if not approval.escalated_to:
        return ()
    rows = Escalation.objects.filter(approval=approval.pk).order_by("n")
    return tuple(
        _facts_at(row.queue, approval, run, by, held, locked=locked)
        for row in rows if row.is_genuine and row.queue != approval.queue
    )  # fmt: skip


def _facts_at(
    queue: str, approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, locked: bool
) -> Facts:
    if locked:
        _hold(queue, by.person)
    with connection.cursor() as cursor:
        cursor.execute(_BY_NAME, [by.person, queue])
        return facts_in(cursor.fetchone()[0], approval, run, by, held, at=queue)


def facts_in(told: str, approval: Approval, run: Run | None, by: Actor, held: frozenset[str], *, at: str = "") -> Facts:
    """The same of what FACTS gave to somebody who asked for more along with it. `at` is the queue, if not the one that
    was asked first."""
    read = json.loads(told, parse_float=Decimal, parse_int=int)
    now = datetime.fromisoformat(read["now"])
    queue = None if read["queue"] is None else row_of(Queue, read["queue"])
    # One that somebody ended who hasn't the key still binds: nothing is approved under what isn't genuine.
    limits = [row_of(Limit, row) for row in read["limits"]]
    caps = {limit.person: _cap(limit) for limit in limits if limit.ended_at is None or not limit.is_genuine}
    role = "" if queue is None else queue.role
    pairs = [(row_of(Deputy, each["row"]), each["whom"]) for each in read["deputies"]]
    deputyships = [_deputyship(row, _member(whom, row.principal, caps), run, role, now) for row, whom in pairs]
    who = Member(by.name, None, held) if by.person is None else _member(read["who"], by.person, caps)
    if run is not None and (role in who.roles or any(each.is_now(now) for each in deputyships)):
        who = who.having(own_act(run, by.person, by.name))
    return Facts(
        queue=None if queue is None else _queue(queue, caps.get(None)), name=at or approval.queue, who=who, now=now,
        deputyships=deputyships, asked=asked_in(approval),
    )  # fmt: skip


def _hold(queue: str, person: int | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_HOLD_QUEUE, [queue])
        if person is None:
            return
        cursor.execute(_HOLD_DEPUTIES, [person])
        people = sorted({person, *(principal for (principal,) in cursor.fetchall())})
        cursor.execute(_HOLD_ACCOUNTS, [people])
        cursor.execute(_HOLD_ROLES, [people])


def _deputyship(row: Deputy, whom: Member, run: Run | None, role: str, now: datetime) -> Deputyship:
    made = Deputyship(row.pk, whom, row.starts_at, row.ends_at, row.revoked_at is not None, row.is_genuine)
    if run is not None and made.is_now(now) and role in whom.roles:
        whom = whom.having(own_act(run, whom.person, whom.name))
    return Deputyship(made.id, whom, made.starts_at, made.ends_at, made.is_revoked, made.is_genuine)


def _member(user: dict[str, Any] | None, person: int, caps: dict[int | None, Cap]) -> Member:
    if user is None:
        return Member(f"account {person}", person, is_active=False)
    roles = frozenset(name for name in user["roles"] if is_role(name))
    return Member(user["name"], person, roles, user["is_active"], caps.get(person))


def _queue(row: Queue, cap: Cap | None) -> QueueFacts:
    return QueueFacts(
        row.name, row.role, is_open=row.state == Queue.State.OPEN, is_removed=row.state == Queue.State.REMOVED,
        needs_amount=row.needs_amount, cap=cap, is_genuine=row.is_genuine,
    )  # fmt: skip


def _cap(row: Limit) -> Cap:
    most = None if row.most is None else Sum(row.most, row.currency)
    return Cap(most, "role" if row.person is None else "person", row.is_genuine)


def told(standing: Standing, asked: Asked) -> dict[str, Any] | None:
    """What a decision's record says of the standing: None for somebody's own role without a limit."""
    deputy = standing.deputyship
    said: dict[str, Any] = {"queue": standing.queue} if standing.queue else {}
    if deputy is not None:
        said["deputy_of"] = {"name": deputy.principal.name, "person": deputy.principal.person, "deputy": deputy.id}
    caps = [cap for cap in (standing.cap, standing.deputy_cap) if cap is not None]
    if caps:
        said["limits"] = [
            {"of": cap.of} if cap.most is None
            else {"of": cap.of, "most": format(cap.most.value, "f"), "currency": cap.most.currency}
            for cap in caps
        ]  # fmt: skip
    if caps and isinstance(asked.amount, Sum):
        said["amount"] = {"value": format(asked.amount.value, "f"), "currency": asked.amount.currency}
    return said or None
