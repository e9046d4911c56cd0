"""A standing grant as it stands: read whole, under its lock where it is used or taken back.

Rows come along as JSON, so that one that nobody can read breaks nothing. What other hands wrote gives nothing: a grant,
or a use of it, that is not genuine lets nothing through, and any row that says it is taken back takes it back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from django.db import connection

from approvals.calendars.asof import row_of
from approvals.grants import StandingEnd, StandingGrant, StandingUse
from approvals.policy import Sum

# Any number, the same in every process: with a grant's own one it is the lock of that grant.
_LOCK = 7_231_076
_LOCK_OF_SAME = 7_231_077  # with a digest of what is the same: of all grants of that
_NEWEST = "ORDER BY g.at DESC, g.id DESC LIMIT %s"
# Whether a call went out under the yes of a wait `w`, or under another's that was given in view of it.
USED = """w.consumed_at IS NOT NULL OR EXISTS (
    SELECT 1 FROM runs_wait x WHERE x.run_id = w.run_id AND x.consumed_by = w.slot AND x.consumed_at > w.resolved_at)"""
# All but that in which anything can be written, and the code, which is none without it.
_READABLE = "(to_jsonb(g) - 'fields' - 'code')::text"
_READ = f"""SELECT json_build_object('now', clock_timestamp(), 'grant', to_json(g)::text, 'readable', {_READABLE},
    'uses', (SELECT coalesce(json_agg(to_json(u)::text ORDER BY u.n), '[]') FROM approvals_standinguse u
             WHERE u.grant_id = g.id),
    'end', (SELECT to_json(e)::text FROM approvals_standingend e WHERE e.grant_id = g.id),
    'has_unused', EXISTS (
        SELECT 1 FROM approvals_standinguse u JOIN approvals_approval a ON a.id = u.approval_id AND a.state = 'approved'
        JOIN runs_wait w ON w.id = a.wait_id JOIN runs_run r ON r.id = w.run_id
        WHERE u.grant_id = g.id AND NOT ({USED}) AND r.state NOT IN ('completed', 'cancelled')
          AND (w.grant_expires_at > clock_timestamp() OR EXISTS (
              SELECT 1 FROM runs_wait y WHERE y.run_id = w.run_id AND y.slot = w.slot AND y.kind = 'approval'
              AND y.n > w.n AND y.resolved_at IS NULL))))::text
    FROM approvals_standinggrant g"""


# The same for a list: of the uses the newest ones, and what the database counts of them all.
MOST_USES = 50
_LIST = f"""SELECT json_build_object('now', clock_timestamp(), 'grant', to_json(g)::text, 'readable', {_READABLE},
    'uses', (SELECT coalesce(json_agg(to_json(u)::text ORDER BY u.n), '[]') FROM (
                 SELECT * FROM approvals_standinguse u WHERE u.grant_id = g.id ORDER BY u.n DESC LIMIT {MOST_USES}) u),
    'counted', (SELECT json_build_array(count(*), coalesce(sum(abs(u.amount)), 0)::text) FROM approvals_standinguse u
                WHERE u.grant_id = g.id),
    'end', (SELECT to_json(e)::text FROM approvals_standingend e WHERE e.grant_id = g.id), 'has_unused', false)::text
    FROM approvals_standinggrant g"""


@dataclass(frozen=True)
class Held:
    """A grant with what was made of it, as of `now`."""

    row: StandingGrant
    uses: Sequence[StandingUse]
    end: StandingEnd | None
    now: datetime
    # Whether a yes that it gave waits to be used.
    has_unused: bool = False
    # Where not all uses were read: how many there are, and how much they were about.
    counted: tuple[int, Decimal] | None = None

    @cached_property
    def is_genuine(self) -> bool:
        return self.row.is_genuine and all(use.is_genuine for use in self.uses)

    @property
    def is_over(self) -> str:
        """Why it lets nothing through any more; empty while it may."""
        if not self.is_genuine:
            return "it was not put on record by this installation"
        if self.end is not None:
            return f"it was taken back by {self.end.by}"
        if self.now >= self.row.until:
            return f"its time was over at {self.row.until:%Y-%m-%d %H:%M} UTC"
        return "it is used up" if len(self.uses) >= self.row.count else ""

    @property
    def used(self) -> int:
        return len(self.uses) if self.counted is None else self.counted[0]

    @property
    def spent(self) -> Decimal:
        if self.counted is not None:
            return self.counted[1]
        return sum((abs(use.amount) for use in self.uses if use.amount is not None), Decimal(0))

    def covers(self, amount: Sum | None) -> str:
        """Why it is not enough for a call of this amount; empty where it is."""
        if (amount is None) != (self.row.most is None):
            return "one of the two names an amount"
        if amount is None or self.row.most is None:
            return ""
        if amount.currency != self.row.currency:
            return f"it is in {self.row.currency}"
        left = self.row.most - self.spent
        return f"{Sum(left, self.row.currency)} of it are left" if abs(amount.value) > left else ""


def held(grant_id: int) -> Held | None:
    """The grant, whose next use or end waits for the end of this transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, grant_id % 2**31])
        cursor.execute(one_of("g.id = %s"), [grant_id, 1])
        found = cursor.fetchone()
    return None if found is None else held_in(found[0])


def others_of(same: str, person: int | None) -> list[Held]:
    """What somebody has allowed that is the same, and may be used yet. Whoever would give another one of the same waits
    for the end of this transaction."""
    there = "g.same = %s AND g.person = %s AND g.until > clock_timestamp()"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK_OF_SAME, same])
        cursor.execute(one_of(there), [same, person, None])
        found = [held_in(told) for (told,) in cursor.fetchall()]
    return [each for each in found if not each.is_over]


def one_of(condition: str) -> str:
    """The statement that reads those that a condition names, the newest first. Its last parameter is how many, NULL
    for all."""
    return f"{_READ} WHERE {condition} {_NEWEST}"


def listed_by(condition: str) -> str:
    """The same for a list, which reads no more than the newest uses of each."""
    return f"{_LIST} WHERE {condition} {_NEWEST}"


def held_in(told: str) -> Held:
    """What one reading gave."""
    found = json.loads(told)
    return Held(
        row_of(StandingGrant, found["grant"], found["readable"]),
        [row_of(StandingUse, use) for use in found["uses"]],
        None if found["end"] is None else row_of(StandingEnd, found["end"]),
        datetime.fromisoformat(found["now"]),
        found["has_unused"],
        (counted[0], Decimal(counted[1])) if (counted := found.get("counted")) else None,
    )
