"""Limits with their rule, their use and the runs that wait, one row each, for the API and the page."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import connection
from pydantic import Field

from durableagents.contrib.limits.protected import LIMIT
from ledger.errors import NotFound
from ledger.protected import is_authentic
from ledger.web.api_base import etag_of
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from runs.engine.limits import Rule

MAX_NAMED_RUNS = 5  # waiting runs listed per limit
_PROOF = LIMIT.proof_sql("l")
_FIELDS = f"""{_PROOF}::text AS proof, l.key, runs_limit_rule(l.key) AS rule, l.given, l.declared, l.of_tool,
    l.given_by, l.given_at AS set_at, l.breaker, l.is_by_hand, l.opened_at, l.rest_until,
    CASE WHEN l.held_until > clock_timestamp() THEN l.held_until END AS held_until,
    l.last_error, l.last_error_at, l.ok + l.ok_before AS served, l.failed + l.failed_before AS failed,
    (SELECT count(*) FROM runs_permit p LEFT JOIN runs_process w ON w.id = p.worker
        WHERE p.key = l.key AND w.ended_at IS NULL AND p.expires_at > clock_timestamp()) AS under_way,
    (SELECT coalesce(sum(o.waiting), 0) FROM runs_limitline o WHERE o.key = l.key AND o.seen_until > clock_timestamp())
        + (SELECT count(*) FROM runs_wait w WHERE w.resolved_at IS NULL AND w.kind = 'timer' AND w.detail ? 'limit'
            AND w.detail ->> 'limit' = l.key) AS waiting,
    ARRAY(SELECT w.run_id FROM runs_wait w WHERE w.resolved_at IS NULL AND w.kind = 'timer' AND w.detail ? 'limit'
        AND w.detail ->> 'limit' = l.key ORDER BY w.deadline LIMIT %s) AS runs,
    CASE WHEN starts_with(l.key, 'agent:') THEN
             (SELECT count(*) FROM runs_run r WHERE r.owner IS NOT NULL AND 'agent:' || r.agent = l.key)
         WHEN starts_with(l.key, 'tag:') THEN
             (SELECT count(*) FROM runs_run r WHERE r.owner IS NOT NULL AND r.lane <> '' AND (
                 'tag:' || r.lane = l.key
                 OR right(l.key, 1) = '*' AND starts_with('tag:' || r.lane, left(l.key, -1)))) END AS driven"""
# Keys without a limit or history are left out, unless their limit was removed outside the application. A tag's limit is
# only shown to viewers with that tag, or with access to all runs.
_LIST = f"""SELECT {_FIELDS} FROM runs_limit l WHERE l.key > %s
    AND (%s OR NOT starts_with(l.key, 'tag:') OR l.key = ANY(%s)) AND (
        l.breaker = 'open' OR l.last_error <> '' OR l.held_until > clock_timestamp()
        OR runs_limit_rule(l.key) <> '{{}}'::jsonb
        OR {_PROOF} -> 0 -> 3 ->> 1 <> '' OR EXISTS (SELECT 1 FROM runs_permit p WHERE p.key = l.key))
    ORDER BY l.key LIMIT %s"""
_ONE = f"SELECT {_FIELDS} FROM runs_limit l WHERE l.key = %s"


class RuleRow(Shape):
    """The limits of a key; null means unlimited."""

    per_minute: int | None = Field(description="Calls per minute.")
    burst: int | None = Field(description="Calls that may be made at once before `per_minute` applies.")
    at_once: int | None = Field(
        description="Calls in progress at the same time; for an agent or a tag: runs driven at the same time."
    )
    breaker: int | None = Field(
        description="Percentage of failed attempts that opens the circuit breaker; null: no breaker."
    )
    rest: int | None = Field(description="Seconds that the breaker stays open before one attempt tests it; null: 30.")
    weight: int | None = Field(description="Share of worker slots relative to other keys; null: 1.")


class LimitRow(Shape):
    """A limit key: the rule in force and its current state."""

    key: str = Field(description="Key of the limit, such as tool:charge.")
    is_authentic: bool = Field(description="False: changed outside the application, so calls under it are not sent.")
    rule: RuleRow = Field(description="Limits in force.")
    source: str = Field(
        description="Source of the rule: a person, `installation` or `tool`; empty if none, or only that of a pattern."
    )
    set_at: datetime | None = Field(description="Time of the last change by a person.")
    breaker: Literal["closed", "open"] = Field(description="State of the circuit breaker.")
    is_by_hand: bool = Field(description="Whether a person opened the breaker.")
    opened_at: datetime | None = Field(description="Time when the breaker opened; null: it is closed.")
    rest_until: datetime | None = Field(
        description="After this time single attempts test whether the upstream system has recovered."
    )
    held_until: datetime | None = Field(description="Time until which the upstream system asked not to be called.")
    served: int | None = Field(description="Attempts in the last 30 to 60 seconds, if a breaker counts them.")
    failed: int | None = Field(description="Failed attempts in that period.")
    last_error: str = Field(description="Last error that the breaker counted; empty: none.")
    last_error_at: datetime | None = Field(description="Time of that error; null if there is none.")
    under_way: int | None = Field(
        description="Like every count here, null if it would include runs that you may not see."
    )
    driven: int | None = Field(description="For an agent or a tag: its runs that workers are executing now.")
    waiting: int | None = Field(description="Attempts that wait for a permit, either in a worker or on a timer.")
    runs: list[UUID] = Field(description="Some of the runs that wait on a timer, earliest first.")
    etag: str = Field(description="Version of the rule and the breaker, for the header `If-Match` of a change.")

    @property
    def is_open(self) -> bool:
        return self.breaker == "open"

    @property
    def rule_lines(self) -> list[str]:
        """Return the rule's fields as texts for the page."""
        return [f"{name} {value}" for name, value in self.rule.model_dump(exclude_none=True).items()]


def list_limits(*, limit: int, after: str = "") -> list[LimitRow]:
    """List the known keys in order of name, after a given one."""
    who = viewer()
    return _read(_LIST, [MAX_NAMED_RUNS, after, who.sees_all, [f"tag:{tag}" for tag in sorted(who.tags)], limit])


def get_limit(key: str) -> LimitRow:
    """Return one key's row. Raises NotFound."""
    for row in _read(_ONE, [MAX_NAMED_RUNS, key]):
        return row
    raise NotFound("limit", key)


def _read(statement: str, values: list[Any]) -> list[LimitRow]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        names = [column.name for column in cursor.description]
        rows = [_row(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]
    return rows if viewer().sees_all else [row.model_copy(update=_OF_OTHERS) for row in rows]


# Values shown to viewers without access to all runs, since the real ones would reveal other people's runs.
_OF_OTHERS: dict[str, Any] = {
    **dict.fromkeys(("served", "failed", "under_way", "driven", "waiting", "last_error_at")),
    "runs": [],
    "last_error": "",
}


def _row(found: dict[str, Any]) -> LimitRow:
    given, declared, of_tool = (_plain(found.pop(name)) for name in ("given", "declared", "of_tool"))
    given_by = found.pop("given_by")
    source = (
        given_by
        if given is not None
        else "installation"
        if declared is not None
        else "tool"
        if of_tool is not None
        else ""
    )
    rule, proof = Rule.of(_plain(found.pop("rule"))), found.pop("proof")
    row = LimitRow.model_construct(**found, rule=RuleRow.of(rule), source=source, is_authentic=is_authentic(proof))
    row.etag = etag_of({"rule": row.rule, "values": [row.key, source, row.set_at, row.breaker, row.is_by_hand]})
    return row


def _plain(stored: Any) -> Any:
    """Parse JSON, which Django's raw cursors return as text."""
    return json.loads(stored) if isinstance(stored, str) else stored
