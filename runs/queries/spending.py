"""A run's caps, use and remaining budget for people.
Names are those used in budgets; dollars are text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection

from ledger import events as e
from ledger.clock import lapse
from ledger.models import Head
from runs.engine.budget import NOTHING_USED, RESOURCES, Call, Usage, begun_by, usd_of
from runs.models import ENDED, Run, Wait
from runs.services.budgets.asked import LABELS, budget_wait_text

# A model request ends with the debit that has the same number, any other call with its result or a verdict.
_OPEN = """
    SELECT e.run_id, e.slot, e.attempt, e.clear FROM unnest(%s::uuid[]) AS r(id)
    CROSS JOIN LATERAL (SELECT coalesce(max(seq), 0) AS seq FROM runs_checkpoint WHERE run_id = r.id) AS c
    JOIN ledger_event e ON e.run_id = r.id AND e.seq > c.seq
    WHERE e.kind IN ('ToolInvoked', 'ModelRouted', 'ChildStarted') AND NOT EXISTS (
        SELECT 1 FROM ledger_event f WHERE f.run_id = e.run_id AND f.slot = e.slot AND f.attempt = e.attempt
        AND CASE e.kind WHEN 'ModelRouted' THEN f.fact = replace(e.fact, 'routed', 'debit')
            ELSE f.fact IN ('result', 'accepted') OR (f.kind = 'ToolReconciled' AND f.clear NOT LIKE %s) END)"""
_LEFT_OPEN = b'%"verdict":"fail"%'


def reserved(runs: Sequence[Run], heads: Mapping[UUID, Head]) -> dict[UUID, Usage]:
    return {run_id: sum(begun.values(), NOTHING_USED) for run_id, begun in under_way(runs, heads).items()}


def under_way(runs: Sequence[Run], heads: Mapping[UUID, Head]) -> dict[UUID, dict[Call, Usage]]:
    """Return the amounts that calls in progress have reserved, by run and call."""
    begun = [run.pk for run in runs if run.state not in ENDED and run.pk in heads and heads[run.pk].epoch]
    found: dict[UUID, dict[Call, Usage]] = {}
    if not begun:
        return found
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [begun, _LEFT_OPEN])
        for run_id, slot, attempt, clear in cursor.fetchall():
            found.setdefault(run_id, {})[slot, attempt] = _usage(bytes(clear))
    return found


def _usage(clear: bytes) -> Usage:
    """Return the amounts that an intent reserves. An unreadable intent stops its run, but must not break this list."""
    try:
        return begun_by(e.decode(clear)) or NOTHING_USED
    except (ValueError, TypeError, KeyError):
        return NOTHING_USED


# Names in budgets for the engine's resources.
NAMES = {"usd_micro": "usd", "time": "wall_seconds"}


@dataclass(frozen=True, slots=True)
class Share:
    """One resource of a run. `cap` None means unlimited. Money is in millionths of a dollar."""

    name: str
    used: int
    cap: int | None
    reserved: int = 0

    @property
    def left(self) -> int | None:
        """Return the amount that is neither used nor reserved, at least 0."""
        return None if self.cap is None else max(self.cap - self.used - self.reserved, 0)

    @property
    def percent(self) -> int:
        if self.cap is None:
            return 0
        return min(100 * self.used // self.cap, 100) if self.cap else 100

    def shown(self, amount: int | None) -> Any:
        return usd_of(amount) if self.name == "usd" and amount is not None else amount


def shares(head: Head, aside: Usage = NOTHING_USED) -> list[Share]:
    """Return all resources of a run. `aside` is the reserved amount."""
    return [
        Share(NAMES.get(name, name), getattr(head, name), getattr(head, f"cap_{name}"), getattr(aside, name))
        for name in RESOURCES
    ]


def cost_usd(head: Head) -> str | None:
    """Return the cost so far; None if a model has no price."""
    return None if head.unpriced_calls else usd_of(head.usd_micro)


def cost_words(head: Head) -> str:
    """Return the cost as text: a dash if unknown, "" without model calls."""
    if head.unpriced_calls:
        return "–"
    return f"${usd_of(head.usd_micro)}" if head.usd_micro else ""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The cap that a run has reached and waits at.
    `reserved` is the amount for calls without a recorded outcome; `enough` is the lowest sufficient value for each cap.
    Amounts that the row lacks are None."""

    wait: Wait
    resource: str
    at_most: int | None
    used: int | None
    wanted: int | None
    reserved: int | None
    enough: dict[str, int]

    @property
    def left(self) -> int | None:
        """Return the amount that is neither used nor reserved, at least 0."""
        if self.at_most is None or self.used is None:
            return None
        return max(self.at_most - self.used - (self.reserved or 0), 0)

    @property
    def since(self) -> datetime:
        return self.wait.opened_at

    @property
    def until(self) -> datetime:
        return self.wait.deadline

    @property
    def queue(self) -> str:
        """Return the queue that is asked in addition to operators; "" if none."""
        return _text(self.wait, "queue")

    @property
    def held_by(self) -> str:
        """Return who else paused the run, so that raising the budget won't resume it; "" if nobody did."""
        return _text(self.wait, "held_by")

    @property
    def title(self) -> str:
        return "Needs more time" if self.resource == "wall_seconds" else "Needs more budget"

    @property
    def label(self) -> str:
        return LABELS.get(self.resource, self.resource or "something")

    def shown(self, amount: int | None) -> Any:
        return Share(self.resource, 0, None).shown(amount)


def exceeded(waits: Iterable[Wait]) -> Exceeded | None:
    """Return the budget request among these waits; None if there is none."""
    wait = next((wait for wait in waits if wait.kind == Wait.Kind.BUDGET), None)
    if wait is None:
        return None
    resource = _text(wait, "resource")
    most, used, wanted, reserved = (_number(wait, name) for name in ("most", "used", "wanted", "reserved"))
    return Exceeded(wait, NAMES.get(resource, resource), most, used, wanted, reserved, _enough(wait, resource))


def _enough(wait: Wait, resource: str) -> dict[str, int]:
    """Return the required caps by budget name.
    An older row has only the cap that was hit. A time limit is computed again, because time has passed."""
    parts = [_number(wait, name) for name in ("used", "reserved", "wanted")]
    fields = budget_wait_text(wait).get("enough")
    if not isinstance(fields, dict):
        fields = {resource: sum(part or 0 for part in parts)} if resource and None not in parts else {}
    enough = {NAMES.get(name, name): least for name, least in fields.items() if _is_number(least)}
    if "wall_seconds" in enough:
        enough["wall_seconds"] = max(enough["wall_seconds"], _passed(_text(wait, "began")) + 1)
    return {name: least for name, least in enough.items() if name in LABELS}


def _number(wait: Wait, name: str) -> int | None:
    found = budget_wait_text(wait).get(name)
    return found if _is_number(found) else None


def _passed(began: str) -> int:
    try:
        return int((datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds())
    except (ValueError, TypeError):
        return 0


def _text(wait: Wait, name: str) -> str:
    found = budget_wait_text(wait).get(name)
    return found if isinstance(found, str) else ""


def _is_number(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)


def spent(exceeded: Exceeded) -> str:
    """Return the used and the needed amount for a cap."""
    if exceeded.resource == "wall_seconds" or exceeded.wanted is None:
        used, most = amounts_of(exceeded.resource, exceeded.used, exceeded.at_most)
        return f"{used} of {most} used"
    wanted, left, most, aside = amounts_of(
        exceeded.resource, exceeded.wanted, exceeded.left, exceeded.at_most, exceeded.reserved
    )
    return f"needs {wanted}, {left} of {most} left{f', {aside} reserved' if exceeded.reserved else ''}"


def amounts_of(resource: str, *numbers: int | None) -> list[str]:
    """Return amounts as texts with equal decimal places, with a dash for missing ones."""
    if resource != "usd":
        return [amount_of(resource, number) for number in numbers]
    texts = [None if number is None else usd_of(number) for number in numbers]
    places = max((len(text.partition(".")[2]) for text in texts if text), default=2)
    return ["–" if text is None else "$" + text + "0" * (places - len(text.partition(".")[2])) for text in texts]


def amount_of(resource: str, number: int | None) -> str:
    """Return an amount as text; a dash if it is missing."""
    if number is None:
        return "–"
    if resource == "usd":
        return f"${usd_of(number)}"
    return lapse(number) if resource == "wall_seconds" else f"{number:,}"
