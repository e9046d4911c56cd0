"""Queues and deputyships, read in the statement of the session or key, so that no page needs another query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from approvals.calendars.asof import LOOKED_AT, row_of
from approvals.calendars.models import Escalation
from approvals.queue_models import Deputy, Queue
from approvals.talk.models import Delegation, Inquiry
from ledger.clock import MOMENT
from ledger.keys import code_key
from ledger.web.roles import Mark, OwnCase, OwnLimit, StandsIn
from runs.journal import wait_hooks

_QUEUES = """(SELECT coalesce(json_agg(json_build_array(
                  q.name, q.role, q.state = 'open', q.proof::text, to_json(q)::text) ORDER BY q.id), '[]')
              FROM approvals_queue q WHERE q.state <> 'removed')"""
_ROLES = r"(SELECT coalesce(json_agg(g.name), '[]') FROM auth_group g WHERE g.name LIKE 'approver\_%%')"
# No deputies of deputies: the principal holds the role themselves and may sign in.
_STANDS = """(
    SELECT coalesce(json_agg(json_build_array(to_json(d)::text, p.username, at.queues)), '[]')
    FROM approvals_deputy d
    JOIN auth_user p ON p.id = d.principal AND p.is_active
    CROSS JOIN LATERAL (
        SELECT json_agg(q.name) AS queues FROM approvals_queue q
        WHERE q.state <> 'removed' AND (d.queue_id IS NULL OR d.queue_id = q.id)
          AND EXISTS (SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
                      WHERE m.user_id = p.id AND g.name = q.role)) at
    WHERE d.deputy = {user} AND d.revoked_at IS NULL AND d.ends_at > statement_timestamp()
      AND d.starts_at <= statement_timestamp() AND at.queues IS NOT NULL)"""
# Limits that may bind the reader: the queues', their own and their principals'; and the queues they decide by role.
_LIMITS = """(SELECT coalesce(json_agg(json_build_array(
        q.name, q.needs_amount, l.person, l.most::text, l.currency)), '[]')
    FROM approvals_limit l JOIN approvals_queue q ON q.id = l.queue_id AND q.state <> 'removed'
    WHERE l.ended_at IS NULL AND (l.person IS NULL OR l.person = {user} OR l.person IN (
        SELECT d.principal FROM approvals_deputy d WHERE d.deputy = {user} AND d.revoked_at IS NULL)))"""
_DECIDES = """(SELECT json_build_array({user}, coalesce(json_agg(q.name), '[]')) FROM approvals_queue q WHERE EXISTS (
    SELECT FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
    WHERE m.user_id = {user} AND g.name = q.role))"""
# The reader's single cases: delegated by someone who still decides there, or asked about. Rows stay, so only the
# newest of closed ones are read. Open ones have their own limit, one of each question first, so that forged rows of one
# can't displace others. {user} may be an outer column, so tables have unique aliases. Two reads of each, by the
# person's index: one sort would wait for thousands of closed ones.
_HANDED = """(SELECT d.approval_id, 'decide' AS what, principal.username AS name, d.made_at AS at,
             to_json(d)::text AS told, at.places
         FROM approvals_delegation d JOIN auth_user principal ON principal.id = d.principal AND principal.is_active
         JOIN approvals_approval handed ON handed.id = d.approval_id AND {which} (handed.state = 'open')
         CROSS JOIN LATERAL (
             SELECT json_agg(json_build_array(to_json(place)::text, CASE WHEN place.name <> handed.queue THEN (
                 SELECT coalesce(json_agg(to_json(went)::text), '[]') FROM (
                     SELECT * FROM approvals_escalation e WHERE e.approval_id = handed.id AND e.queue = place.name
                     AND e.n > 0 ORDER BY e.n LIMIT 5) went) END)) AS places
             FROM approvals_queue place
             JOIN auth_group role ON role.name = place.role
             JOIN auth_user_groups holder ON holder.group_id = role.id AND holder.user_id = d.principal
             WHERE place.name = handed.queue OR place.name = ANY (handed.escalated_to)) at
         WHERE d.deputy = {user} AND d.ended_at IS NULL AND d.n >= 0 AND at.places IS NOT NULL
         ORDER BY {first} d.made_at DESC LIMIT 100)"""
_ASKED = """(SELECT i.approval_id, CASE WHEN i.outcome = '' THEN 'asked' ELSE 'answered' END,
             coalesce(asker.username, split_part(i.by, ':', 2)), i.at, to_json(i)::text, NULL::json
         FROM approvals_inquiry i LEFT JOIN auth_user asker ON asker.id = i.asker
         JOIN approvals_approval about ON about.id = i.approval_id AND {which} (about.state = 'open' AND i.outcome = '')
         WHERE i.person = {user} AND i.outcome <> 'withdrawn' AND i.n >= 0 ORDER BY {first} i.at DESC LIMIT 100)"""


def _waiting(sql: str, row: str) -> str:
    return sql.replace("{which}", "").replace(
        "{first}", f"row_number() OVER (PARTITION BY {row}.approval_id ORDER BY {row}.n),"
    )


def _over(sql: str) -> str:
    return sql.replace("{which}", "NOT").replace("{first}", "")


_CASES = f"""(
    SELECT coalesce(json_agg(json_build_array(x.approval_id, x.what, x.name, x.told, x.places)
                             ORDER BY x.at DESC), '[]') FROM (
        {_waiting(_HANDED, "d")} UNION ALL {_over(_HANDED)}
        UNION ALL {_waiting(_ASKED, "i")} UNION ALL {_over(_ASKED)}) x)"""
# SQL value: each queue's newest timings, and the newest versions of the calendars they name. Their codes decide which
# count.
_TIMINGS = f"""json_build_object(
    'queues', (SELECT coalesce(json_agg(json_build_array(q.name, t.told)), '[]')
        FROM approvals_queue q CROSS JOIN LATERAL (
            SELECT json_agg(to_json(t)::text ORDER BY t.version DESC) AS told FROM (
                SELECT * FROM approvals_timing t WHERE t.queue_id = q.id
                ORDER BY t.version DESC LIMIT {LOOKED_AT}) t) t
        WHERE q.state <> 'removed' AND t.told IS NOT NULL),
    'calendars', (SELECT coalesce(json_agg(json_build_array(n.calendar, c.told)), '[]')
        FROM (SELECT DISTINCT calendar FROM approvals_timing WHERE calendar <> '') n CROSS JOIN LATERAL (
            SELECT json_agg(to_json(c)::text ORDER BY c.version DESC) AS told FROM (
                SELECT * FROM approvals_calendar c WHERE c.name = n.calendar
                ORDER BY c.version DESC LIMIT {LOOKED_AT}) c) c
        WHERE c.told IS NOT NULL))"""
# Only for workers, which open questions; pages don't read it.
_TIMED = f"SELECT json_build_object({{facts}}, 'timing', {_TIMINGS})::text"
_FACTS = f"'at', {MOMENT}, 'queues', {_QUEUES}, 'roles', {_ROLES}"

# The queues alone; and with an account named by `user`, its deputyships.
FACTS = _TIMED.format(facts=_FACTS).replace("%%", "%")
ALONG = f"""json_build_object({_FACTS}, 'stands', {_STANDS}, 'cases', {_CASES}, 'limits', {_LIMITS},
    'decides', {_DECIDES})::text"""


def is_ours(row: str) -> bool:
    """Return whether a queue's row, as text, is authentic. Cached: every request reads all; they rarely change."""
    return _is_genuine(row, code_key())


@lru_cache(maxsize=1000)
def _is_genuine(row: str, key: bytes) -> bool:
    return row_of(Queue, row).is_genuine


def learnt(told: Any) -> list[Mark]:
    """Learn the queues; return the reader's deputyships, cases and limits. Forged rows or queues grant nothing."""
    told = json.loads(told) if isinstance(told, str) else told
    wait_hooks.queues.learn(told)
    ours = {name for name, *_, row in told["queues"] if is_ours(row)}
    deputies = [(row_of(Deputy, row), whom, queues) for row, whom, queues in told["stands"]]
    stands = [
        StandsIn(queue, row.ends_at, whom)
        for row, whom, queues in deputies
        if row.is_genuine
        for queue in queues
        if queue in ours
    ]
    cases = [
        OwnCase(UUID(case), what, whom)
        for case, what, whom, row, places in told["cases"]
        if row_of(Delegation if what == "decide" else Inquiry, row).is_genuine
        and (what != "decide" or any(is_ours(place) and _is_asked_there(went) for place, went in places))
    ]
    places = [(queue, row.principal) for row, _, queues in deputies if row.is_genuine for queue in queues]
    return [*stands, *cases, *_limits(told, places)]


def _limits(told: dict[str, Any], places: Sequence[tuple[str, int]]) -> list[OwnLimit]:
    """Return the reader's limit by queue where one binds: their highest. For counting and display only."""
    me, decided = told["decides"]
    limits = {(queue, person): (most, currency, needs) for queue, needs, person, most, currency in told["limits"]}
    found = []
    for queue in {*decided, *(queue for queue, _ in places)}:
        role, own = limits.get((queue, None)), limits.get((queue, me))
        ways = [[own or role]] if queue in decided else []
        ways += [[limits.get((queue, principal)) or role, own] for at, principal in places if at == queue]
        caps = [[cap for cap in way if cap is not None and cap[0] is not None] for way in ways]
        if all(caps):  # one unlimited way means no limit
            most, currency, needs = max((min(way, key=_most) for way in caps), key=_most)
            found.append(OwnLimit(queue, Decimal(most), currency, needs))
    return found


def _most(cap: Sequence[Any]) -> Decimal:
    return Decimal(cap[0])


def _is_asked_there(went: Sequence[str] | None) -> bool:
    """Return whether a case is decided at a queue: its first one, or by an authentic escalation."""
    return went is None or any(row_of(Escalation, each).is_genuine for each in went)
