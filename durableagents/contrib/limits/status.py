"""The reason for the status of a run that waits for a limit or circuit breaker."""

from __future__ import annotations

from runs.queries.display import detail_text, name_of
from runs.queries.run_facts import RunFacts
from runs.queries.sentences import data, name, of_wait, write
from runs.queries.status import OPERATORS, SYSTEM, FeatureReason, own_reason

_HELD = {
    "breaker": "its circuit breaker is open",
    "rate": "its call rate limit is reached",
    "at_once": "its limit of concurrent calls is reached",
    "asked": "the system asked to be called later",
    "changed": "its limit was changed outside the application; an administrator has to confirm it",
}


def limit_reason(facts: RunFacts) -> FeatureReason | None:
    """Return a limit or circuit breaker as the reason for a run's status; None if the run waits for neither."""
    wait, limit = facts.wait, detail_text(facts.wait, "limit")
    if wait is None or not limit or own_reason(facts) != "timer":
        return None
    why = detail_text(wait, "why")
    is_breaker = why == "breaker"
    held = _HELD.get(why, "it is limited")
    text = write("{what} waits for {limit}: {held}", what=data(name_of(wait)), limit=name(limit), held=held)
    return FeatureReason(
        reason="breaker" if is_breaker else "limit",
        sentence=of_wait(facts, wait, text, "retry {at}"),
        who=OPERATORS if is_breaker else SYSTEM,
        since=wait.opened_at,
        until=wait.deadline,
    )
