"""Caps in the form that people see, and the amount that a run waiting for budget still lacks.
The amount is computed in exactly the same way as by the run's worker. The wait's row holds the original request; later
changes are in a separate column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from ledger.errors import DurableAgentsError
from ledger.models import Head
from runs.engine.budget import NOTHING_USED, RESOURCES, Budget, Caps, Usage, breaches, usd_of
from runs.engine.errors import JournalBroken
from runs.engine.steps.spending import lacking, reserved_by
from runs.journal.reader import tape_of
from runs.models import Run, Wait

TIME = "time"
# Fields of a budget request that may change later. The queue that is asked may not change.
_CHANGES = frozenset("title resource most used reserved wanted needs enough began held_by".split())
LABELS = {
    "usd": "dollars",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "steps": "steps",
    "wall_seconds": "time",
}
NEEDS_TIME = "Needs more time"


class StaleBudget(DurableAgentsError):
    """The caps have changed since they were read."""

    status, code, title = 409, "stale-budget", "The caps have changed"

    def __init__(self, seen: Budget, now: Budget, changed: Sequence[str]) -> None:
        pairs = [(name, _cap_text(seen, name), _cap_text(now, name)) for name in changed]
        text = ", ".join(f"{LABELS[name]} was {was}, is {is_now}" for name, was, is_now in pairs)
        super().__init__(
            f"The caps were changed since you read them: {text}. Read them again before you set them.",
            errors=[
                {"field": f"budget.{name}", "problem": f"was {was}, is {is_now} now", "fix": "look again"}
                for name, was, is_now in pairs
            ],
            caps=now.model_dump(mode="json"),
        )


def _cap_text(budget: Budget, name: str) -> str:
    value = getattr(budget, name)
    if value is None:
        return "no cap"
    return f"${value:,}" if name == "usd" else f"{value:,} seconds" if name == "wall_seconds" else f"{value:,}"


def check_seen(seen: Budget, now: Budget) -> None:
    """Check that the caps are still those that the caller saw. Raises StaleBudget if one differs."""
    changed = [name for name, value in seen if name in seen.model_fields_set and value != getattr(now, name)]
    if changed:
        raise StaleBudget(seen, now, changed)


def caps_of(head: Head) -> Caps:
    return Caps(*(getattr(head, f"cap_{name}") for name in Caps.__slots__))


def budget_of(run: Run, head: Head, budget_waits: Sequence[Wait] = ()) -> Budget:
    """Return the caps with the time limit.

    While more time is requested, the time limit is the one that was exceeded.
    """
    caps: dict[str, Any] = caps_of(head).stated()
    micro = caps.pop("usd_micro", None)
    time = next((budget_wait_text(wait).get("most") for wait in budget_waits if resource_of(wait) == TIME), None)
    if run.time_up_at is not None:
        time = max(1, round((run.time_up_at - run.counts_from).total_seconds()))
    seconds = time if isinstance(time, int) and time > 0 else None  # a damaged row has no usable value
    usd = None if micro is None else Decimal(usd_of(micro))
    return Budget.model_construct(**caps, usd=usd, wall_seconds=seconds)


def resource_of(wait: Wait) -> str | None:
    """Return the resource that a budget wait requests; None if its row doesn't name one."""
    found = budget_wait_text(wait).get("resource")
    return found if isinstance(found, str) else None


def budget_wait_text(wait: Wait) -> dict[str, Any]:
    """Return a budget wait's detail with later changes; a damaged row yields nothing."""
    fields = dict(wait.detail) if isinstance(wait.detail, dict) else {}
    since = wait.lacking if isinstance(wait.lacking, dict) else {}
    return fields | {name: value for name, value in since.items() if name in _CHANGES}


def note(wait: Wait, news: dict[str, Any]) -> None:
    """Store changes of a budget request. The original request isn't overwritten."""
    wait.lacking = {**(wait.lacking if isinstance(wait.lacking, dict) else {}), **news}
    wait.save(update_fields=["lacking"])


def lacks(run: Run, head: Head, wait: Wait, *, is_time_given: bool, now: datetime) -> dict[str, Any] | None:
    """Return the changes to a budget wait's row that show what is still missing under the current caps.
    None if nothing is missing."""
    wanted = _needs(wait)
    if short := list(breaches(caps_of(head), Usage.of(head), _reserved(run), wanted)):
        return lacking(short, wanted)
    if run.time_up_at is not None and run.time_up_at <= now:
        given = round((run.time_up_at - run.counts_from).total_seconds())
        return time_lacking(run, given, now=now)
    if resource_of(wait) == TIME and not is_time_given and run.time_up_at is None:
        return {}
    return None


def time_lacking(run: Run, given: int, *, now: datetime) -> dict[str, Any]:
    """Return the detail of a budget wait for a run whose time limit of `given` seconds is up."""
    taken = int((now - run.counts_from).total_seconds())
    return {
        "title": NEEDS_TIME,
        "resource": TIME,
        "most": given,
        "used": taken,
        "reserved": 0,
        "wanted": 0,
        "enough": {TIME: taken + 1},
        "began": run.counts_from.isoformat(),
    }


def _needs(wait: Wait) -> Usage:
    """Return all amounts that the blocked call would use; an older row names only the resource whose cap was hit."""
    wait_text = budget_wait_text(wait)
    needs = wait_text.get("needs", {resource_of(wait): wait_text.get("wanted")})
    amounts = needs if isinstance(needs, dict) else {}
    return Usage(**{name: n for name in RESOURCES if isinstance(n := amounts.get(name), int) and n > 0})


def _reserved(run: Run) -> Usage:
    try:
        return sum((usage for _, usage in reserved_by(tape_of(run))), NOTHING_USED)
    except JournalBroken:
        return NOTHING_USED  # The worker will also find the damage, and stops the run for an operator.
