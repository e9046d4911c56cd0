"""The sentence for each reason, in plain text: callers escape it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from runs.models import Wait
from runs.queries.display import detail_text, name_of, stood_at, undone
from runs.queries.families import child_of
from runs.queries.halts import halt_of
from runs.queries.run_facts import RunFacts
from runs.queries.spending import exceeded

Words = Callable[[RunFacts], str]
# For queues and gates with another rule for timeouts.
_NOBODY = {"escalate": "escalated if nobody does", "remind": "it has no deadline"}


def at(moment: datetime | None) -> str:
    """Format a moment in UTC; a dash if unknown."""
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ended(how: str) -> Words:
    return lambda s: f"{how} at {at(s.run.ended_at)}. Nothing more happens."


def _gone_on(how: str) -> Words:
    return lambda s: f"{how} at {at(s.run.ended_at)}. It continues as run {s.run.goes_on_as}."


def _failed(s: RunFacts) -> str:
    where = f" in {node}" if (node := stood_at(s.run)) else ""
    final = f" {said}" if (said := undone(s.run)) else ""
    return f"Failed at {at(s.run.ended_at)}{where}: {s.run.error_code or 'no code on record'}.{final}"


def _damaged(s: RunFacts) -> str:
    if s.head is None:
        return "The run's head row is missing. The database administrator has to restore it."
    if s.wait is not None:
        return f"Its journal is damaged. It has been waiting for an operator since {at(s.wait.opened_at)}."
    return "Its rows contradict each other: `manage.py ledger verify` lists the problems."


def _paused(s: RunFacts) -> str:
    by = f" by {s.paused_by}" if s.paused_by else ""
    return f"Paused{by} since {at(s.run.updated_at)}, until someone resumes it."


def _budget(s: RunFacts) -> str:
    asked = exceeded(s.waits)
    if asked is None:
        return "Needs a higher budget."
    return (
        f"Its budget of {asked.label} is used up since {at(asked.since)}. It is cancelled unless someone"
        f" raises it by {at(asked.until)}."
    )


def _until(s: RunFacts, wait: Wait) -> str:
    if halt_of(s.head) is not None:  # its deadlines are deferred
        return ""
    match detail_text(wait, "on_timeout"):
        case "remind":
            return ""
        case "escalate":
            return f", due {at(wait.deadline)}"
        case _:
            return f", deadline {at(wait.deadline)}"


def wait_sentence(s: RunFacts, text: str) -> str:
    """Complete the text about the main wait by its times and the number of further waits."""
    if s.wait is None:
        return "Waiting; its record doesn't say for what."
    more = f" And {len(s.waits) - 1} more." if len(s.waits) > 1 else ""
    return f"{text}, since {at(s.wait.opened_at)}{_until(s, s.wait)}.{more}"


def _wait(said: Callable[[RunFacts, Wait], str]) -> Words:
    return lambda s: wait_sentence(s, "" if s.wait is None else said(s, s.wait))


def _child(s: RunFacts, wait: Wait) -> str:
    child = child_of(wait)
    need = f", which needs {child.need}" if child is not None and child.need else ""
    return f"Waiting for the child run {child.id if child is not None else name_of(wait)}{need}"


def _unknown(s: RunFacts, wait: Wait) -> str:
    doubt = f"The outcome of “{name_of(wait)}” is unknown"
    if s.proposal is None:
        return f"{doubt}. An operator has to settle it"
    found = "it happened" if s.proposal.verdict == "happened" else "it did not happen"
    return f"{doubt}. {s.proposal.by} says that {found}. A second operator has to confirm it"


def _driven(s: RunFacts) -> str:
    at_node = f" at {s.run.node}" if s.run.node else ""
    return f"Running{at_node} in worker process {s.run.owner}."


def _pausing(s: RunFacts) -> str:
    return "Pausing: it stops after the current step."


def _cancelling(s: RunFacts) -> str:
    return "Cancelling: nothing new is sent. It ends when calls in progress are settled."


def _not_due(s: RunFacts) -> str:
    return f"Accepted; starts at {at(s.run.ready_at)}.{_in_time(s)}"


def _behind(s: RunFacts) -> str:
    until = f"run {s.ahead} ends" if s.ahead else "its turn comes"
    return f"Queued behind other runs with the key {s.run.business_key}, until {until}.{_in_time(s)}"


def _in_time(s: RunFacts) -> str:
    before = s.run.start_before
    return f" It is cancelled if it doesn't start by {at(before)}." if before else ""


def _blocked(s: RunFacts) -> str:
    return f"Ready since {at(s.run.ready_at)}, but {s.blocked}."


SENTENCES: dict[str, Words] = {
    "completed": _ended("Completed"),
    "renewed": _gone_on("Renewed"),
    "handed_off": _gone_on("Handed off"),
    "failed": _failed,
    "cancelled": _ended("Cancelled"),
    "damaged": _damaged,
    "paused": _paused,
    "pausing": _pausing,
    "cancelling": _cancelling,
    "budget": _budget,
    "unknown_outcome": _wait(_unknown),
    "stopped": _wait(lambda s, w: f"Stopped for an operator: {detail_text(w, 'reason') or 'see the run'}"),
    "approval": _wait(
        lambda s, w: (
            f"Waiting for {' or '.join(s.asked) or 'an approver'} to decide “{name_of(w)}”;"
            f" {_NOBODY.get(detail_text(w, 'on_timeout'), 'rejected if nobody does')}"
        )
    ),
    "question": _wait(lambda s, w: f"Asks {detail_text(w, 'of') or 'someone'}: “{name_of(w)}”"),
    "callback": _wait(lambda s, w: f"Waiting for the answer to “{name_of(w)}”"),
    "signal": _wait(lambda s, w: f"Waiting for the signal {detail_text(w, 'name', 'title')}"),
    "message": _wait(lambda s, w: f"Waiting for a message: “{name_of(w)}”"),
    "child": _wait(_child),
    "pool": _wait(lambda s, w: f"Waiting for room in the shared budget {detail_text(w, 'name')}"),
    "retry_timer": _wait(
        lambda s, w: f"“{name_of(w)}” could not be reached ({detail_text(w, 'error')}) and is retried automatically"
    ),
    "timer": _wait(lambda s, w: "Waiting for a timer"),
    "not_due": _not_due,
    "behind_key": _behind,
    "no_worker": _blocked,
    "no_version": _blocked,
    "draining": _blocked,
    "no_key": _blocked,
    "queued": lambda s: f"Ready since {at(s.run.ready_at)}, waiting for a worker.",
    "driven": _driven,
    "undoing": lambda s: "Undoing its effects. It ends after that.",
}
