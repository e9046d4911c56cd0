"""Reads a standing approval completely, under its lock when it is used or revoked.

Rows are read as JSON, so that one with invalid values doesn't break the others. A forged grant or use approves nothing,
while any row that ends a standing approval takes effect, even a forged one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from django.db import connection

from approvals.policy import Sum
from durableagents.contrib.standing_approvals.models import StandingEnd, StandingGrant, StandingUse
from ledger.rows import row_of

# An arbitrary number, the same in every process. Together with a standing approval's id, it is that one's advisory
# lock.
_LOCK = 7_231_076
_LOCK_OF_SAME = 7_231_077  # together with the digest of a call, it is the lock of all standing approvals for that call
_NEWEST = "ORDER BY g.at DESC, g.id DESC LIMIT %s"
# Whether a call was sent under the approval of a wait `w`, or under a later approval that includes it.
USED = """w.consumed_at IS NOT NULL OR EXISTS (
    SELECT 1 FROM runs_wait x WHERE x.run_id = w.run_id AND x.consumed_by = w.slot AND x.consumed_at > w.resolved_at)"""
# Columns that can be read even if other columns have invalid values.
_READABLE = "(to_jsonb(g) - 'fields' - 'code')::text"
# Whether an approval from the standing approval is still unused.
_HAS_UNUSED = f"""EXISTS (
    SELECT 1 FROM approvals_standinguse u JOIN approvals_approval a ON a.id = u.approval_id AND a.state = 'approved'
    JOIN runs_wait w ON w.id = a.wait_id JOIN runs_run r ON r.id = w.run_id
    WHERE u.grant_id = g.id AND NOT ({USED}) AND r.state NOT IN ('completed', 'cancelled')
      AND (w.grant_expires_at > clock_timestamp() OR EXISTS (
          SELECT 1 FROM runs_wait y WHERE y.run_id = w.run_id AND y.slot = w.slot AND y.kind = 'approval'
          AND y.n > w.n AND y.resolved_at IS NULL)))"""
MAX_USES = 50  # uses read per standing approval in lists


@dataclass(frozen=True)
class StandingApproval:
    """A standing approval and its uses, at the time `now`."""

    row: StandingGrant
    uses: Sequence[StandingUse]
    end: StandingEnd | None
    now: datetime
    used: int
    spent: Decimal  # the total amount of all uses
    has_unused: bool

    @cached_property
    def is_authentic(self) -> bool:
        return self.row.is_authentic and all(use.is_authentic for use in self.uses)

    @property
    def is_over(self) -> str:
        """Return why the standing approval can no longer be used; empty if it can."""
        if not self.is_authentic:
            return "this installation didn't record it"
        if self.end is not None:
            return f"it was revoked by {self.end.by}"
        if self.now >= self.row.until:
            return f"it expired at {self.row.until:%Y-%m-%d %H:%M} UTC"
        return "it is used up" if self.used >= self.row.count else ""

    def covers(self, amount: Sum | None) -> str:
        """Return why the standing approval doesn't cover this amount; empty if it does."""
        if (amount is None) != (self.row.most is None):
            return "only one of the two has an amount"
        if amount is None or self.row.most is None:
            return ""
        if amount.currency != self.row.currency:
            return f"it is in {self.row.currency}"
        left = self.row.most - self.spent
        return f"only {Sum(left, self.row.currency)} of its total is left" if abs(amount.value) > left else ""


def lock_grant(grant_id: int) -> StandingApproval | None:
    """Lock a standing approval and return it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, grant_id % 2**31])
        cursor.execute(select_whole("g.id = %s"), [grant_id, 1])
        found = cursor.fetchone()
    return None if found is None else held_in(found[0])


def others_of(same: str, person: int | None) -> list[StandingApproval]:
    """Lock and return a person's other usable standing approvals of identical calls."""
    there = "g.same = %s AND g.person = %s AND g.until > clock_timestamp()"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK_OF_SAME, same])
        cursor.execute(select_whole(there), [same, person, None])
        found = [held_in(value) for (value,) in cursor.fetchall()]
    return [each for each in found if not each.is_over]


def select_whole(condition: str) -> str:
    """Return SQL that reads all standing approvals that meet a condition, newest first.

    The last parameter is the limit, NULL for none."""
    return _select(condition, "ALL", _HAS_UNUSED)


def select_for_list(condition: str) -> str:
    """Return the same SQL for lists: it reads only the newest uses of each standing approval."""
    return _select(condition, str(MAX_USES), "false")


def _select(condition: str, uses: str, has_unused: str) -> str:
    of_it = "approvals_standinguse u WHERE u.grant_id = g.id"
    return f"""SELECT json_build_object('now', clock_timestamp(), 'grant', to_json(g)::text, 'readable', {_READABLE},
        'uses', (SELECT coalesce(json_agg(to_json(u)::text ORDER BY u.n), '[]')
                 FROM (SELECT * FROM {of_it} ORDER BY u.n DESC LIMIT {uses}) u),
        'used', (SELECT count(*) FROM {of_it}), 'spent', (SELECT coalesce(sum(abs(u.amount)), 0)::text FROM {of_it}),
        'end', (SELECT to_json(e)::text FROM approvals_standingend e WHERE e.grant_id = g.id),
        'has_unused', {has_unused})::text
    FROM approvals_standinggrant g WHERE {condition} {_NEWEST}"""


def held_in(value: str) -> StandingApproval:
    """Parse one result of these statements."""
    found = json.loads(value)
    return StandingApproval(
        row_of(StandingGrant, found["grant"], found["readable"]),
        [row_of(StandingUse, use) for use in found["uses"]],
        None if found["end"] is None else row_of(StandingEnd, found["end"]),
        datetime.fromisoformat(found["now"]),
        found["used"],
        Decimal(found["spent"]),
        found["has_unused"],
    )
