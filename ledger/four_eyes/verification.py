"""Verify the two-person setting and proposed changes: each row is authentic and has its acts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from ledger.models import ActRecord, FourEyes, RuleChange
from ledger.verification.registers import Listed

_ENDED = {"rule_change_apply": "applied", "rule_change_refuse": "refused", "rule_change_withdraw": "withdrawn"}


def every_change() -> Listed | None:
    """Check all rows of both; None if there are none."""
    rows = [row for row in FourEyes.objects.order_by("n") if row.is_authentic]
    changes = RuleChange.objects.order_by("made_at", "id")
    found = [*_guards(rows), *_changes(list(changes))]
    count = len(rows) + len(changes)
    return Listed("changes of rules", count, "", found) if count or found else None


def _guards(rows: list[FourEyes]) -> Iterator[str]:
    """Compare the authentic rows with their acts. `ledger/protected.py` finds the others."""
    told = ActRecord.objects.filter(action="four_eyes", n__gt=0)
    acts = Counter((str(_said(act).get("families")), act.by) for act in told if isinstance(act.after, dict))
    for row in rows:
        said = (str(list(row.families)), row.set_by)
        if not acts[said]:
            yield f"row {row.n} of what two people change has no act that says so"
        acts[said] -= 1
    for (families, by), missing in acts.items():
        if missing > 0:
            yield f"{by} said that two people change {families}, and the row that says so is missing"


def _said(act: ActRecord) -> dict[str, Any]:
    """Return an act's outcome; empty if none of our processes can have written it."""
    return act.after if isinstance(act.after, dict) else {}


def _by_two(what: str, row: RuleChange, agreement: ActRecord | None) -> Iterator[str]:
    """Check that two people agreed, and that the records just before the agreement are the proposed ones."""
    if agreement is None or agreement.n is None or not isinstance(row.told, list):
        return  # reported by the checks of its acts and its code
    if agreement.person in (None, row.person):
        yield f"{what} was put in force by its proposer"
    done = list(ActRecord.objects.filter(n__gte=agreement.n - len(row.told), n__lt=agreement.n).order_by("n"))
    if len(done) != len(row.told) or not all(map(_is_told, done, row.told, repeat(row.person))):
        yield f"{what} is in force, and what it did is not on record as it was proposed"


def _is_told(act: ActRecord, told: dict[str, Any], person: int) -> bool:
    """Return whether an act is the proposed one, except for generated parts."""
    is_same = (act.action, act.queue, act.before, act.person) == (told["action"], told["queue"], told["before"], person)
    return is_same and told["after"].items() <= _said(act).items()


def _changes(rows: list[RuleChange]) -> Iterator[str]:
    acts = ActRecord.objects.filter(action__in=["rule_change", *_ENDED], n__gt=0)
    said = {(act.subject, act.action): act for act in acts}
    for row in rows:
        what = f"change {row.pk}"
        if not row.is_authentic:
            yield f"{what} was not written by this installation"
        proposed = said.pop((what, "rule_change"), None)
        if proposed is None or (proposed.by, _said(proposed).get("told")) != (row.by, row.told):
            yield f"{what} has no act that proposed it"
        if row.state == RuleChange.State.APPLIED and row.is_authentic:
            yield from _by_two(what, row, said.get((what, "rule_change_apply")))
        for action, state in _ENDED.items():
            ended = said.pop((what, action), None)
            if (ended is None) != (row.state != state) or (ended is not None and ended.by != row.ended_by):
                yield f"{what} is {row.state}, and its acts say otherwise"
                break
    for subject, _ in said:
        yield f"{subject} was proposed, and is gone"
