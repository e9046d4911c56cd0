"""Putting down that people are to be told: in the transaction of what happened.

Gates, waits and failures do it by themselves, in the database (approvals/sql/). Whoever has other news calls `tell`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection

from approvals.notices.kinds import KINDS
from ledger.four_eyes import changes
from ledger.models import RuleChange
from runs.fleet import agent_versions
from runs.models import Run, Wait
from runs.services.settling import agreeing

# A version that is missing for a moment, while workers are renewed, is no news; one that is missing for a day is again.
_MISSING = """
    SELECT approvals_tell('version_missing:' || v || ':' || floor(extract(epoch FROM clock_timestamp()) / 600),
                          'version_missing', NULL, NULL, NULL, NULL, v, clock_timestamp() + interval '1 minute')
    FROM unnest(%s::text[]) AS v
    WHERE NOT EXISTS (SELECT 1 FROM approvals_notice n WHERE n.kind = 'version_missing' AND n.about = v
                      AND n.state <> 'over' AND n.at > clock_timestamp() - interval '1 day')"""


def tell(
    kind: str,
    fact: str,
    *,
    run_id: UUID | None = None,
    approval_id: UUID | None = None,
    wait_id: UUID | None = None,
    person: int | None = None,
    about: str = "",
    due_at: datetime | None = None,
) -> None:
    """Let people be told, from `due_at` on, once the caller's transaction is committed. `fact` says what happened: the
    same one is told once. With a `person` it is for that account alone, if it may still know by then."""
    assert kind in KINDS, kind
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT approvals_tell(%s, %s, %s, %s, %s, %s, %s, %s)",
            [f"{kind}:{fact}", kind, run_id, approval_id, wait_id, person, about, due_at],
        )


def versions_missing(graph_ids: Sequence[str]) -> None:
    """Runs are ready, and no worker has their version."""
    with connection.cursor() as cursor:
        cursor.execute(_MISSING, [list(graph_ids)])


def change_proposed(row: RuleChange) -> None:
    tell("rule_change", str(row.pk), about=str(row.pk))


def outcome_said(run: Run, wait: Wait, n: int) -> None:
    tell("outcome_said", f"{wait.pk}:{n}", run_id=run.pk, wait_id=wait.pk, about=str(n))


def plug_in() -> None:
    """Hear of versions that no worker has, and of what waits for a second person."""
    if outcome_said not in agreeing.on_proposed:
        agreeing.on_proposed.append(outcome_said)
    if versions_missing not in agent_versions.on_unserved:
        agent_versions.on_unserved.append(versions_missing)
    if change_proposed not in changes.on_proposed:
        changes.on_proposed.append(change_proposed)
