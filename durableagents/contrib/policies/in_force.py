"""Reads the policies in force in one statement, and checks them against the record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import connection

from durableagents.contrib.policies.conditions import restore_condition
from durableagents.contrib.policies.judging import Rule, Rulebook
from durableagents.contrib.policies.models import Policy, digest
from ledger.rows import row_of
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import proof_in
from runs.models import PolicyRevision
from runs.queries.expressions import Misread

# The newest revision and all policies in force as one JSON document, in evaluation order.
STATEMENT = """SELECT json_build_object(
    'revision', (SELECT to_json(r)::text FROM runs_policyrevision r ORDER BY r.revision DESC LIMIT 1),
    'policies', (SELECT coalesce(json_agg(to_json(p)::text ORDER BY p.name), '[]')
                 FROM approvals_policy p WHERE p.ended_at IS NULL)
)::text"""


def read_policies() -> Rulebook:
    """Return the policies in force, over Django's connection."""
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT)
        return book_of(json.loads(cursor.fetchone()[0]))


def book_of(values: Any) -> Rulebook:
    """Build the rulebook. If the policies differ from the record, the result has a problem instead of rules."""
    rows = [row_of(Policy, each) for each in values["policies"]]
    if values["revision"] is None:
        return Rulebook(0, problem="there are policies, but no record of which are in force" if rows else "")
    revision = row_of(PolicyRevision, values["revision"])
    problem = _problem(revision, rows)
    if problem:
        return Rulebook(revision.revision, problem=problem)
    try:
        return Rulebook(revision.revision, tuple(map(rule_of, rows)))
    except Misread as error:
        return Rulebook(revision.revision, problem=f"a policy's condition can't be read: it {error.problem}")
    except DefinitionError as error:
        return Rulebook(revision.revision, problem=f"a policy can't be read: {error}")


def _problem(revision: PolicyRevision, rows: Sequence[Policy]) -> str:
    if not revision.is_authentic:
        return f"revision {revision.revision} of the policies was not written by this installation"
    for row in rows:
        if not row.is_authentic:
            return f"policy {row.name} was not written by this installation, or was changed outside the application"
    if (revision.live, revision.policies) != (len(rows), digest(rows)):
        return f"the policies in force are not those of revision {revision.revision}: one was added or removed"
    return ""


def rule_of(row: Policy) -> Rule:
    """Return a version as a rule that can be evaluated. Raises Misread, DefinitionError."""
    return Rule(
        name=row.name,
        version=row.version,
        agent=row.agent,
        tool=row.tool,
        condition=restore_condition(row.condition, row.kinds),
        effect=str(row.effect),  # type: ignore[arg-type]
        queue=row.queue,
        within=timedelta(seconds=row.within_seconds),
        rule=row.rule,
        proof=proof_in(row.proof),
    )
