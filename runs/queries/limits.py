"""Limits and their status: rules, current use, and waiting runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.protected import is_authentic
from ledger.web.seeing.viewers import viewer
from runs.engine.limits import Rule
from runs.models import Limit
from runs.protected import LIMIT

# Waiting runs named per limit.
NAMED = 5
_PROOF = LIMIT.proof_sql("l")
_FIELDS = f"""{_PROOF}::text, l.key,
    runs_limit_rule(l.key), l.given, l.declared, l.of_tool, l.given_by, l.given_at, l.breaker,
    l.is_by_hand, l.opened_at, l.rest_until, CASE WHEN l.held_until > clock_timestamp() THEN l.held_until END,
    l.last_error, l.last_error_at, l.ok + l.ok_before, l.failed + l.failed_before,
    (SELECT count(*) FROM runs_permit p LEFT JOIN runs_process w ON w.id = p.worker
        WHERE p.key = l.key AND w.ended_at IS NULL AND p.expires_at > clock_timestamp()),
    (SELECT coalesce(sum(o.waiting), 0) FROM runs_limitline o WHERE o.key = l.key AND o.seen_until > clock_timestamp()),
    (SELECT count(*) FROM runs_wait w WHERE w.resolved_at IS NULL AND w.kind = 'timer' AND w.detail ? 'limit'
        AND w.detail ->> 'limit' = l.key),
    ARRAY(SELECT w.run_id FROM runs_wait w WHERE w.resolved_at IS NULL AND w.kind = 'timer' AND w.detail ? 'limit'
        AND w.detail ->> 'limit' = l.key ORDER BY w.deadline LIMIT %s),
    (SELECT runs_tokens(l, (runs_limit_rule(l.key) ->> 'per_minute')::float8 / 60,
        coalesce((runs_limit_rule(l.key) ->> 'burst')::float8,
                 greatest(1, ceil((runs_limit_rule(l.key) ->> 'per_minute')::float8 / 60))), clock_timestamp())),
    CASE WHEN starts_with(l.key, 'agent:') THEN
             (SELECT count(*) FROM runs_run r WHERE r.owner IS NOT NULL AND 'agent:' || r.agent = l.key)
         WHEN starts_with(l.key, 'tag:') THEN
             (SELECT count(*) FROM runs_run r WHERE r.owner IS NOT NULL AND r.lane <> '' AND (
                 'tag:' || r.lane = l.key
                 OR right(l.key, 1) = '*' AND starts_with('tag:' || r.lane, left(l.key, -1)))) END"""
# Keys without a limit or history are left out, unless the limit was removed outside the application. A tag's limit is
# shown to viewers with that tag.
_LIST = f"""SELECT {_FIELDS} FROM runs_limit l WHERE l.key > %s
    AND (%s OR NOT starts_with(l.key, 'tag:') OR l.key = ANY(%s)) AND (
        l.breaker = 'open' OR l.last_error <> '' OR l.held_until > clock_timestamp()
        OR runs_limit_rule(l.key) <> '{{}}'::jsonb
        OR {_PROOF} -> 0 -> 3 ->> 1 <> '' OR EXISTS (SELECT 1 FROM runs_permit p WHERE p.key = l.key))
    ORDER BY l.key LIMIT %s"""
_ONE = f"SELECT {_FIELDS} FROM runs_limit l WHERE l.key = %s"


@dataclass(frozen=True, slots=True)
class Standing:
    """One key. Viewers who don't see all runs get None for numbers and errors of others.
    `served` and `failed` cover the last half to full minute; `tokens` is the bucket's content; `driven` the agent's or
    tag's driven runs."""

    is_genuine: bool  # false: changed outside the application
    key: str
    rule: Rule
    given: Any
    declared: Any
    of_tool: Any
    given_by: str
    given_at: datetime | None
    breaker: str
    is_by_hand: bool
    opened_at: datetime | None
    rest_until: datetime | None
    held_until: datetime | None
    last_error: str
    last_error_at: datetime | None
    served: int | None
    failed: int | None
    under_way: int | None
    in_place: int | None
    parked: int | None
    runs: Sequence[UUID]
    tokens: float | None
    driven: int | None

    @property
    def is_open(self) -> bool:
        return self.breaker == Limit.Breaker.OPEN

    @property
    def waiting(self) -> int | None:
        """Return how many calls wait for a permit, in place or by a timer."""
        return None if self.in_place is None or self.parked is None else self.in_place + self.parked

    @property
    def said(self) -> list[str]:
        return [f"{name} {value}" for name, value in self.rule.stated().items()]

    @property
    def source(self) -> str:
        """Return who set the rule: a person, the installation, or the tool."""
        if self.given is not None:
            return self.given_by
        return "installation" if self.declared is not None else "tool" if self.of_tool is not None else ""


def standing(*, limit: int, beyond: str = "") -> list[Standing]:
    """Return the known keys after one, by name."""
    who = viewer()
    return _read(_LIST, [NAMED, beyond, who.sees_all, [f"tag:{tag}" for tag in sorted(who.tags)], limit])


def standing_of(key: str) -> Standing | None:
    found = _read(_ONE, [NAMED, key])
    return found[0] if found else None


def _read(statement: str, values: list[Any]) -> list[Standing]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    found = [
        Standing(
            is_authentic(proof), key, Rule.of(_plain(rule)), _plain(given), _plain(declared), _plain(of_tool), *rest
        )
        for proof, key, rule, given, declared, of_tool, *rest in rows
    ]
    return found if viewer().sees_all else [_own(one) for one in found]


def _own(one: Standing) -> Standing:
    """Return it without what would reveal others' runs."""
    return replace(
        one,
        served=None,
        failed=None,
        under_way=None,
        in_place=None,
        parked=None,
        runs=(),
        tokens=None,
        driven=None,
        last_error="",
        last_error_at=None,
    )


def _plain(stored: Any) -> Any:
    """Return JSON that a raw cursor of Django's gives as text."""
    return json.loads(stored) if isinstance(stored, str) else stored
