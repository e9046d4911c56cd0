"""The kinds of notifications, with their recipients and default media.

A new kind needs only a line here. Whatever reports it calls `runs.features.notify`, or `approvals_tell` in the
database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db import connection

from ledger.change_control import ProposedChange
from runs.features import Notification


class Medium(StrEnum):
    EMAIL = "email"
    PUSH = "push"
    BROWSER = "browser"


class Audience(StrEnum):
    """The recipients of a kind. They are determined when the notification is sent."""

    DECIDERS = "deciders"  # may decide the approval
    ANSWERERS = "answerers"  # may answer the question
    RAISERS = "raisers"  # may raise the budget
    OPERATORS = "operators"
    WAITED_FOR = "waited for"  # people for whom the overdue wait waits
    STARTER = "starter"  # operators, and the run's starter
    SECONDS = "seconds"  # people who may apply a proposed rule change
    NAMED = "named"  # only the person or channel named in the notification


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of notification.

    `lead` begins the mail's subject; `label` is its name in the settings; `page` is the URL name of the page to link to
    if the notice has no subject of its own. By default a kind is sent by mail and to registered devices, but not shown
    in open pages."""

    name: str
    label: str
    lead: str
    audience: Audience
    is_on: bool = True
    page: str = "agents"

    @property
    def media(self) -> list[str]:
        return [Medium.EMAIL.value, Medium.PUSH.value] if self.is_on else []


# The kinds that people choose in their settings.
CHOSEN = (
    Kind("opened", "A case needs your decision", "To decide", Audience.DECIDERS),
    Kind("due_soon", "A deadline is near", "Deadline near", Audience.DECIDERS),
    Kind("reminder", "Reminders", "Reminder", Audience.DECIDERS),
    Kind("escalated", "A case was escalated to you", "Escalated", Audience.DECIDERS),
    Kind("delegated", "A case was delegated to you", "Delegated to you", Audience.DECIDERS),
    Kind("inquiry", "Someone asked you about a case", "Question about a case", Audience.NAMED),
    Kind("inquiry_answer", "Your question about a case was answered", "Answered", Audience.NAMED),
    Kind("question", "A run asked you a question", "Question", Audience.ANSWERERS),
    Kind("budget", "A run needs more budget", "Budget used up", Audience.RAISERS),
    Kind("overdue", "A case is overdue", "Overdue", Audience.WAITED_FOR),
    Kind("unknown_outcome", "A call's outcome is unknown", "Unknown outcome", Audience.OPERATORS),
    Kind("outcome_said", "An outcome needs a second operator", "Confirm outcome", Audience.OPERATORS),
    Kind("operator_stop", "A run stopped for an operator", "Needs an operator", Audience.OPERATORS),
    Kind("failed", "A run failed", "Failed", Audience.STARTER),
    Kind("ended", "A run that you started has ended", "Ended", Audience.NAMED, is_on=False),
    Kind(
        "endpoint_stopped", "A webhook was paused or disabled", "Webhook stopped", Audience.OPERATORS, page="webhooks"
    ),
    Kind("version_missing", "No worker for a version", "No worker", Audience.OPERATORS),
    Kind("rule_change", "A rule change needs a second person", "Rule change", Audience.SECONDS),
)
# Tests delivery. The test notification: people send it to themselves, and administrators to a channel.
TEST = Kind("test", "A test", "Test", Audience.NAMED, page="notifications")
KINDS: dict[str, Kind] = {kind.name: kind for kind in (*CHOSEN, TEST)}
# The kinds for a chat or mailbox of a queue, and the kinds for one of the operators.
OF_QUEUES = tuple(
    kind.name
    for kind in CHOSEN
    if kind.audience in (Audience.DECIDERS, Audience.ANSWERERS) and kind.name != "delegated"
)
OF_OPERATORS = tuple(
    kind.name for kind in CHOSEN if kind.audience not in (Audience.DECIDERS, Audience.ANSWERERS, Audience.NAMED)
)

# A version that is missing for less than a minute, as in a rolling restart, is not reported. A version that is still
# missing after a day is reported again.
_MISSING = """
    SELECT approvals_tell('version_missing:' || v || ':' || floor(extract(epoch FROM clock_timestamp()) / 600),
                          'version_missing', NULL, NULL, NULL, NULL, v, clock_timestamp() + interval '1 minute')
    FROM unnest(%s::text[]) AS v
    WHERE NOT EXISTS (SELECT 1 FROM approvals_notice n WHERE n.kind = 'version_missing' AND n.about = v
                      AND n.state <> 'over' AND n.at > clock_timestamp() - interval '1 day')"""


def tell(news: Notification, *, due_at: datetime | None = None) -> None:
    """Store a notification, which is sent after the caller's commit, from `due_at` on."""
    assert news.kind in KINDS, news.kind
    values = [news.kind, news.run_id, news.approval_id, news.wait_id, news.person, news.about, due_at]
    with connection.cursor() as cursor:
        cursor.execute("SELECT approvals_tell(%s, %s, %s, %s, %s, %s, %s, %s)", [f"{news.kind}:{news.fact}", *values])


def tell_of_missing_versions(graph_ids: Sequence[str]) -> None:
    """Notify operators of agent versions that ready runs need, but that no live worker drives."""
    with connection.cursor() as cursor:
        cursor.execute(_MISSING, [list(graph_ids)])


def tell_of_change(row: ProposedChange) -> None:
    """Notify of a rule change that a second person must confirm."""
    tell(Notification(kind="rule_change", fact=str(row.pk), about=str(row.pk)))
