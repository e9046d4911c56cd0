"""What people are told of: each kind once, with whom it is for and how it is told unless they say otherwise. Pure: no
Django, no I/O.

A new kind is a line here; who makes it known calls `tell` (tell.py), or `approvals_tell` in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db import connection

from ledger.four_eyes import changes
from ledger.models import RuleChange
from runs.fleet import agent_versions
from runs.models import Run, Wait
from runs.services.settling import agreeing


class Way(StrEnum):
    """How a person is told."""

    EMAIL = "email"
    PUSH = "push"
    BROWSER = "browser"


class Whom(StrEnum):
    """Whom a kind is for; who that is, is asked when it is told."""

    DECIDERS = "deciders"  # who may decide the approval
    ANSWERERS = "answerers"  # who may answer the question
    RAISERS = "raisers"  # who may raise the budget
    OPERATORS = "operators"
    WAITED_FOR = "waited for"  # whoever the wait that is overdue is for
    STARTER = "starter"  # operators, and who started the run
    SECONDS = "seconds"  # who may put a proposed change of a rule in force
    NAMED = "named"  # the person or channel that the notice names, and nobody else


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that people are told of. `lead` begins its mail's subject; `label` is how the settings call it.

    By mail and to devices that somebody lets be told it is told unless they say otherwise; an open page tells nobody
    who has not asked for it.
    """

    name: str
    label: str
    lead: str
    whom: Whom
    by_mail: bool = True

    @property
    def box(self) -> str:
        return f"kind.{self.name}"

    @property
    def ways(self) -> list[str]:
        return [Way.EMAIL.value, Way.PUSH.value] if self.by_mail else []


_ALL = (
    Kind("opened", "A decision waits for you", "To decide", Whom.DECIDERS),
    Kind("due_soon", "Its deadline is near", "Deadline near", Whom.DECIDERS),
    Kind("reminder", "A reminder of it", "Reminder", Whom.DECIDERS),
    Kind("escalated", "It was escalated to you", "Escalated", Whom.DECIDERS),
    Kind("delegated", "A decision is handed to you", "Handed to you", Whom.DECIDERS),
    Kind("inquiry", "Somebody asks you about a case", "Asked about a case", Whom.NAMED),
    Kind("inquiry_answer", "What you asked about a case is answered", "Answered", Whom.NAMED),
    Kind("question", "A question is put to you", "Question", Whom.ANSWERERS),
    Kind("budget", "A run asks for more budget", "Budget used up", Whom.RAISERS),
    Kind("overdue", "What waits for you is overdue", "Overdue", Whom.WAITED_FOR),
    Kind("unknown_outcome", "A call's outcome is unknown", "Unknown outcome", Whom.OPERATORS),
    Kind("outcome_said", "What became of a call needs a second operator's word", "Second word", Whom.OPERATORS),
    Kind("operator_stop", "A run stopped for an operator", "Needs an operator", Whom.OPERATORS),
    Kind("failed", "A run failed", "Failed", Whom.STARTER),
    Kind("version_missing", "No worker has a version that runs need", "No worker", Whom.OPERATORS),
    Kind("rule_change", "A change of a rule waits for a second person", "Rule change", Whom.SECONDS),
)
# Whether mail or a chat gets there at all: by whoever asks, to themselves, or by an administrator to a channel.
TEST = Kind("test", "A test", "Test", Whom.NAMED)
KINDS: dict[str, Kind] = {kind.name: kind for kind in (*_ALL, TEST)}
# What people choose about.
CHOSEN = _ALL
# What an approval's queue may have told in a chat or a shared mailbox of its own.
OF_QUEUES = ("opened", "due_soon", "reminder", "escalated", "question")
# And what the operators may.
OF_OPERATORS = (
    "unknown_outcome",
    "outcome_said",
    "operator_stop",
    "overdue",
    "budget",
    "failed",
    "version_missing",
    "rule_change",
)


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
