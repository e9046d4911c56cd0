"""Proposed rule changes for pages and the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from ledger.clock import database_now
from ledger.four_eyes.changes import MAX_OPEN, is_late, may_second, some
from ledger.four_eyes.known import FAMILIES, acts, guarded_families, standing
from ledger.models import RuleChange
from ledger.web.tally import BADGE_TO, Counted, badge

PAGE = 50
CHIPS = {
    RuleChange.State.OPEN: ("wait", "open"),
    RuleChange.State.APPLIED: ("ok", "in force"),
    RuleChange.State.REFUSED: ("", "refused"),
    RuleChange.State.WITHDRAWN: ("", "withdrawn"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One value that would change, as the records keep it."""

    name: str
    was: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Shown:
    """A change. `parts` are its differences by the subject of each record. The address `trial` tries it, with `tries`.
    If it isn't authentic, `row` has only its id, its time and whether it is open."""

    row: RuleChange
    title: str
    parts: list[tuple[str, list[Part]]]
    is_late: bool
    is_authentic: bool
    may_agree: bool
    is_own: bool
    trial: str
    tries: dict[str, Any]

    @property
    def chip(self) -> tuple[str, str]:
        if not self.is_authentic:
            return "bad", "not authentic"
        return ("bad", "too old") if self.is_late else CHIPS[RuleChange.State(self.row.state)]

    @property
    def is_open(self) -> bool:
        return self.is_authentic and self.row.state == RuleChange.State.OPEN


def newest(user: Any, *, state: str = "") -> list[Shown]:
    """Return all open changes, then the newest others, or those of one state. Forged ones come last, at most a page."""
    rows, is_open = RuleChange.objects.all(), Q(state=RuleChange.State.OPEN)
    now = database_now()  # once for all of them
    if state:
        found = some(rows.filter(state=state), MAX_OPEN, now)
    else:
        found = [*some(rows.filter(is_open), MAX_OPEN, now), *some(rows.exclude(is_open), PAGE, now)]
    shown = [_shown(row, user, now) for row in found]
    return [*(one for one in shown if one.is_authentic), *[one for one in shown if not one.is_authentic][:PAGE]]


@badge("changes")
def waiting(held: frozenset[str]) -> Counted:
    return Counted.of(RuleChange.objects.filter(state=RuleChange.State.OPEN), to=BADGE_TO)


def one(row: RuleChange, user: Any) -> Shown:
    return _shown(row, user, database_now())


def _shown(row: RuleChange, user: Any, now: datetime) -> Shown:
    if not row.is_authentic:
        return Shown(
            _blank(row),
            title=title_of(row),
            parts=[],
            is_late=False,
            is_authentic=False,
            may_agree=False,
            is_own=False,
            trial="",
            tries={},
        )
    return Shown(
        row,
        title=title_of(row),
        parts=[(each["subject"], parts_of(each)) for each in row.told],
        is_late=is_late(row, now),
        is_authentic=True,
        may_agree=may_second(user, row),
        is_own=user.pk == row.person,
        trial=acts[row.act].trial if row.act in acts else "",
        tries=_tries(row),
    )


def _blank(row: RuleChange) -> RuleChange:
    """Return a forged row without any of its text or values of unknown shape."""
    state = row.state if row.state in RuleChange.State.values else RuleChange.State.OPEN
    return RuleChange(
        id=row.pk,
        family="",
        act="",
        given={},
        told=[],
        why="",
        by="",
        person=0,
        made_at=row.made_at,
        state=state,
    )


def title_of(row: RuleChange) -> str:
    """Return what is done to what. A forged row gets a fixed title."""
    if not row.is_authentic:
        return "A row that is not authentic"
    last: dict[str, Any] = row.told[-1] if row.told else {"action": row.act, "subject": ""}
    action, subject = str(last["action"]).replace("_", " "), str(last["subject"])
    return subject if subject.startswith(f"{action} ") else f"{action}: {subject}"


def parts_of(told: dict[str, Any]) -> list[Part]:
    """Return the differences of a record. Empty values of any type are equal."""
    before, after = told["before"], told["after"]
    parts = [Part(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]
    nothing: tuple[Any, ...] = (None, "", [])
    return [part for part in parts if part.was != part.now and not (part.was in nothing and part.now in nothing)]


def guards(ticked: Sequence[str] | None = None) -> list[tuple[str, str, bool]]:
    """Return each family of rules, its text, and whether it needs two people, now or as `ticked`."""
    families = guarded_families() if ticked is None else ticked
    return [(name, words, name in families) for name, words in FAMILIES.items()]


def is_damaged() -> bool:
    """Return whether the two-person setting was forged: then all families need two."""
    row = standing()
    return row is not None and not row.is_authentic


def _tries(row: RuleChange) -> dict[str, Any]:
    """Return the trial's input as a form sends it: ticked boxes only."""
    given = (row.given.get("body") or {}).items()
    body = {name: "on" if value is True else value for name, value in given if value is not False and name != "seen"}
    return {"name": row.given.get("name", ""), **body}
