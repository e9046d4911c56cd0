"""The kinds of notices: recipients and default channels. Pure: no Django, no I/O. A new kind is a line here; its source
calls `tell`, or `approvals_tell` in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db import connection

from ledger.change_control import ProposedChange
from runs.models import Run, Wait


class Way(StrEnum):
    EMAIL = "email"
    PUSH = "push"
    BROWSER = "browser"


class Whom(StrEnum):
    """Recipients of a kind; resolved when it is sent."""

    DECIDERS = "deciders"  # may decide the approval
    ANSWERERS = "answerers"  # may answer the question
    RAISERS = "raisers"  # may raise the budget
    OPERATORS = "operators"
    WAITED_FOR = "waited for"  # those the overdue wait is for
    STARTER = "starter"  # operators, and the run's starter
    SECONDS = "seconds"  # may apply a proposed rule change
    NAMED = "named"  # only the notice's person or channel


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of notice. `lead` begins the mail's subject; `label` is its name in the settings. By default it is sent by
    mail and to registered devices, but not shown in open pages."""

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
    Kind("opened", "A case needs your decision", "To decide", Whom.DECIDERS),
    Kind("due_soon", "A deadline is near", "Deadline near", Whom.DECIDERS),
    Kind("reminder", "Reminders", "Reminder", Whom.DECIDERS),
    Kind("escalated", "A case was escalated to you", "Escalated", Whom.DECIDERS),
    Kind("delegated", "A case was delegated to you", "Delegated to you", Whom.DECIDERS),
    Kind("inquiry", "Someone asked you about a case", "Question about a case", Whom.NAMED),
    Kind("inquiry_answer", "Your question about a case was answered", "Answered", Whom.NAMED),
    Kind("question", "A run asked you a question", "Question", Whom.ANSWERERS),
    Kind("budget", "A run needs more budget", "Budget used up", Whom.RAISERS),
    Kind("overdue", "A case is overdue", "Overdue", Whom.WAITED_FOR),
    Kind("unknown_outcome", "A call's outcome is unknown", "Unknown outcome", Whom.OPERATORS),
    Kind("outcome_said", "An outcome needs a second operator", "Confirm outcome", Whom.OPERATORS),
    Kind("operator_stop", "A run stopped for an operator", "Needs an operator", Whom.OPERATORS),
    Kind("failed", "A run failed", "Failed", Whom.STARTER),
    Kind("ended", "A run that you started has ended", "Ended", Whom.NAMED, by_mail=False),
    Kind("endpoint_stopped", "A webhook was paused or disabled", "Webhook stopped", Whom.OPERATORS),
    Kind("version_missing", "No worker for a version", "No worker", Whom.OPERATORS),
    Kind("rule_change", "A rule change needs a second person", "Rule change", Whom.SECONDS),
)
# Tests delivery: from a person to themselves, or by an administrator to a channel.
TEST = Kind("test", "A test", "Test", Whom.NAMED)
KINDS: dict[str, Kind] = {kind.name: kind for kind in (*_ALL, TEST)}
# Kinds in people's settings.
CHOSEN = _ALL
# Kinds that a queue's own chat or mailbox may get.
OF_QUEUES = ("opened", "due_soon", "reminder", "escalated", "question")
# Kinds that the operators' may get.
OF_OPERATORS = (
    "unknown_outcome",
    "outcome_said",
    "operator_stop",
    "overdue",
    "budget",
    "failed",
    "endpoint_stopped",
    "version_missing",
    "rule_change",
)


# A version missing briefly during a rolling restart is no news; one missing for a day is reported again.
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
    """Create a notice, sent from `due_at` on after the caller's commit. The same `fact` is sent once. With a `person`
    it is for that account alone, if it is still allowed to know."""
    assert kind in KINDS, kind
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT approvals_tell(%s, %s, %s, %s, %s, %s, %s, %s)",
            [f"{kind}:{fact}", kind, run_id, approval_id, wait_id, person, about, due_at],
        )


def versions_missing(graph_ids: Sequence[str]) -> None:
    """Report versions of ready runs that no worker has."""
    with connection.cursor() as cursor:
        cursor.execute(_MISSING, [list(graph_ids)])


def change_proposed(row: ProposedChange) -> None:
    tell("rule_change", str(row.pk), about=str(row.pk))


def outcome_said(run: Run, wait: Wait, n: int) -> None:
    tell("outcome_said", f"{wait.pk}:{n}", run_id=run.pk, wait_id=wait.pk, about=str(n))
