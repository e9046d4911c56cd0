"""What people said of earlier calls of the same tool whose outcome nobody knew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.codec import unpack
from ledger.web.seeing.viewers import viewer
from runs import seen
from runs.models import Run, Wait
from runs.services.settling.senders import name_of

MOST = 20
LOOKED_AT = 500  # that people settled of the tool's calls, whatever agent's
# The newest that people settled, of this agent's runs that the reader sees; with the event that tells why.
_SIMILAR = """
    WITH newest AS MATERIALIZED (
        SELECT run_id, slot, attempt, seq, digest, actor, at, id FROM ledger_ledgerentry
        WHERE fact = 'reconciled' AND tool = %s AND digest IN ('happened', 'did_not', 'fail')
        AND actor ~ '^(user|key|os):' ORDER BY id DESC LIMIT %s)
    SELECT n.run_id, n.digest, n.actor, n.at, r.about, r.creator, (
        SELECT e.sealed FROM ledger_event e
        WHERE e.run_id = n.run_id AND e.slot = n.slot AND e.attempt = n.attempt AND e.kind = 'ToolReconciled'
        AND e.seq <= n.seq ORDER BY e.seq DESC LIMIT 1)
    FROM newest n JOIN runs_run r ON r.id = n.run_id
    WHERE r.agent = %s AND {sees} ORDER BY n.id DESC LIMIT %s"""


@dataclass(frozen=True, slots=True)
class Case:
    """One: what somebody said became of it, who, when and why; `about` is empty where the reader may not know it."""

    run_id: UUID
    verdict: str
    by: str
    at: datetime
    about: str
    why: str


@dataclass(frozen=True, slots=True)
class Similar:
    """The newest ones, and how many of these came to what."""

    tool: str
    cases: tuple[Case, ...]
    counts: dict[str, int]


def similar_to(run: Run, wait: Wait) -> Similar:
    """Earlier cases of the tool that a wait is about, in this agent's runs."""
    tool = name_of(wait)
    sees, values = seen.is_seen("r", viewer())
    with connection.cursor() as cursor:
        cursor.execute(_SIMILAR.format(sees=sees), [tool, LOOKED_AT, run.agent, *values, MOST])
        rows = cursor.fetchall()
    readable = seen.readable({run_id: creator for run_id, _, _, _, _, creator, _ in rows})
    cases = tuple(
        Case(run_id, verdict, by, at, about if run_id in readable else "", _why(sealed))
        for run_id, verdict, by, at, about, _, sealed in rows
    )
    return Similar(tool, cases, dict(Counter(case.verdict for case in cases).most_common()))


def _why(sealed: Any) -> str:
    """The reason that a person gave; none where the event can't be read."""
    try:
        told = unpack(sealed)
    except (ValueError, RecursionError):
        return ""
    return str(told.get("justification") or "") if isinstance(told, dict) else ""
