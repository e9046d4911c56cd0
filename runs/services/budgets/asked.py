"""What a run that stands still for its budget was told to have raised, and whether it has been: its caps as people see
them, and what its question still lacks.

The row of the question says what is lacking; what has changed since it was opened stands in a column of its own. A call
that was to begin is held against every cap, with what is used and set aside by then, exactly as its worker will.
"""

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
# What may change about a question once it is asked: not, whom it asks.
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
    """Somebody has set the caps since they were read."""

    status, code, title = 409, "stale-budget", "Not the caps that were seen"

    def __init__(self, seen: Budget, now: Budget, changed: Sequence[str]) -> None:
        pairs = [(name, _said(seen, name), _said(now, name)) for name in changed]
        told = ", ".join(f"{LABELS[name]} {was} then, {is_now} now" for name, was, is_now in pairs)
        super().__init__(
            f"The caps have been set since you looked: {told}. Nothing was changed; look again, then set them.",
            errors=[
                {"field": f"budget.{name}", "problem": f"was {was}, is {is_now} now", "fix": "look again"}
                for name, was, is_now in pairs
            ],
            caps=now.model_dump(mode="json"),
        )


def _said(budget: Budget, name: str) -> str:
    value = getattr(budget, name)
    if value is None:
        return "no cap"
    return f"${value:,}" if name == "usd" else f"{value:,} seconds" if name == "wall_seconds" else f"{value:,}"


def check_seen(seen: Budget, now: Budget) -> None:
    """Raises StaleBudget where a cap that somebody names as they saw it is another one by now."""
    changed = [name for name, value in seen if name in seen.model_fields_set and value != getattr(now, name)]
    if changed:
        raise StaleBudget(seen, now, changed)


def caps_of(head: Head) -> Caps:
    return Caps(*(getattr(head, f"cap_{name}") for name in Caps.__slots__))


def budget_of(run: Run, head: Head, asked: Sequence[Wait] = ()) -> Budget:
    """The same as people write it, with the time; where more time is `asked` for, the time that there was."""
    caps: dict[str, Any] = caps_of(head).stated()
    micro = caps.pop("usd_micro", None)
    time = next((known(wait).get("most") for wait in asked if resource_of(wait) == TIME), None)
    if run.time_up_at is not None:
        time = max(1, round((run.time_up_at - run.counts_from).total_seconds()))
    seconds = time if isinstance(time, int) and time > 0 else None  # a damaged row says nothing
    usd = None if micro is None else Decimal(usd_of(micro))
    return Budget.model_construct(**caps, usd=usd, wall_seconds=seconds)


def resource_of(wait: Wait) -> str | None:
    """What a question is about; None where its row doesn't say."""
    found = known(wait).get("resource")
    return found if isinstance(found, str) else None


def known(wait: Wait) -> dict[str, Any]:
    """What a question's row says by now; one that was damaged says nothing."""
    said = dict(wait.detail) if isinstance(wait.detail, dict) else {}
    since = wait.lacking if isinstance(wait.lacking, dict) else {}
    return said | {name: value for name, value in since.items() if name in _CHANGES}


def note(wait: Wait, news: dict[str, Any]) -> None:
    """Put beside what a question said when it was opened, which stays, what has changed about it."""
    wait.lacking = {**(wait.lacking if isinstance(wait.lacking, dict) else {}), **news}
    wait.save(update_fields=["lacking"])


def lacks(run: Run, head: Head, wait: Wait, *, is_time_given: bool, now: datetime) -> dict[str, Any] | None:
    """What a question still lacks under the caps that a run has now, as far as its row
    doesn't tell it; None: it is answered."""
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
    """What people are told of a run whose time, so many seconds, is up."""
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
    """All that the call which can't begin would use. An older row names only the cap that it came to."""
    said = known(wait)
    needs = said.get("needs", {resource_of(wait): said.get("wanted")})
    amounts = needs if isinstance(needs, dict) else {}
    return Usage(**{name: n for name in RESOURCES if isinstance(n := amounts.get(name), int) and n > 0})


def _reserved(run: Run) -> Usage:
    try:
        return sum((usage for _, usage in reserved_by(tape_of(run))), NOTHING_USED)
    except JournalBroken:
        return NOTHING_USED  # its worker finds that out too, and stops for an operator
