"""Read proposed changes of rules and the setting, one row each, for the API and the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from pydantic import Field

from durableagents.contrib.change_control.models import RuleChange
from durableagents.contrib.change_control.services import MAX_OPEN
from durableagents.contrib.change_control.setting import guarded_families, read_setting
from ledger.change_control import FAMILIES, acts
from ledger.clock import database_now
from ledger.web.shapes import Shape
from ledger.web.tally import BADGE_TO, Counted, badge

PAGE = 50
CHIPS = {
    RuleChange.State.OPEN: ("wait", "open"),
    RuleChange.State.APPLIED: ("ok", "in force"),
    RuleChange.State.REFUSED: ("", "refused"),
    RuleChange.State.WITHDRAWN: ("", "withdrawn"),
}
_EMPTY: tuple[Any, ...] = (None, "", [])  # values that count as equal whatever their type


@dataclass(frozen=True, slots=True)
class Part:
    """One value that would change, in the form of the record."""

    name: str
    was: Any
    now: Any


class ToldRow(Shape):
    """A record that the change would write."""

    action: str = Field(description="Action that the record names.")
    subject: str = Field(description="Object of the action.")
    queue: str = Field(description="Queue that the record concerns; empty if none.")
    before: dict[str, Any] = Field(description="Values before the change.")
    after: dict[str, Any] = Field(description="Values after the change.")

    @property
    def parts(self) -> list[Part]:
        """Return the values that differ."""
        names = dict.fromkeys([*self.before, *self.after])
        parts = [Part(name, self.before.get(name), self.after.get(name)) for name in names]
        return [part for part in parts if part.was != part.now and not (part.was in _EMPTY and part.now in _EMPTY)]


class RuleChangeRow(Shape):
    """A proposed change."""

    id: UUID = Field(description="Id of the proposed change.")
    title: str = Field(description="Title of the change: the act and its object.")
    family: str = Field(description="Kind of rules that it changes.")
    act: str = Field(description="Name of the service function that it calls.")
    told: list[ToldRow] = Field(description="Records that the change would have written when it was proposed.")
    why: str = Field(description="Justification of the person who proposed it.")
    by: str = Field(description="Person who proposed it.")
    made_at: datetime = Field(description="Time when it was proposed.")
    state: RuleChange.State = Field(description="State of the proposal.")
    ended_by: str = Field(description="Person who applied, refused or withdrew it; empty while it is open.")
    ended_at: datetime | None = Field(description="Time when it was applied, refused or withdrawn.")
    ended_why: str = Field(description="Justification of the person who closed it; empty while it is open.")
    is_late: bool = Field(description="Whether the proposal is too old to apply.")
    is_authentic: bool = Field(description="False: not recorded by this installation, so it can't be applied.")
    may_agree: bool = Field(description="Whether you may be the second person.")
    is_own: bool = Field(description="Whether you proposed it.")

    @property
    def chip(self) -> tuple[str, str]:
        if not self.is_authentic:
            return "bad", "not authentic"
        return ("bad", "too old") if self.is_late else CHIPS[RuleChange.State(self.state)]

    @property
    def is_open(self) -> bool:
        return self.is_authentic and self.state == RuleChange.State.OPEN


class GuardRow(Shape):
    """A kind of rules that may need two people to change."""

    family: str = Field(description="Name of the kind of rules.")
    words: str = Field(description="Its description for people.")
    needs_two: bool = Field(description="Whether two people must change these rules.")


class GuardsRow(Shape):
    """The rules that two people must change."""

    families: list[GuardRow] = Field(description="All kinds of rules that can need two people.")
    is_damaged: bool = Field(
        description="The setting was changed outside this installation, so all rules need two people."
    )


def find_change(change_id: str) -> RuleChange | None:
    """Return a change, even if it is closed."""
    return RuleChange.objects.filter(pk=change_id).first()


def list_changes(user: Any, *, state: str = "") -> list[RuleChangeRow]:
    """Return the newest open changes, then the newest others, or those of one state."""
    rows, is_open = RuleChange.objects.order_by("-made_at"), Q(state=RuleChange.State.OPEN)
    parts = [(rows.filter(state=state), MAX_OPEN)] if state else [(rows.filter(is_open), MAX_OPEN)]
    parts += [] if state else [(rows.exclude(is_open), PAGE)]
    now = database_now()  # read once for all rows
    return [change_row(row, user, now) for some, most in parts for row in some[:most]]


def change_row(row: RuleChange, user: Any, now: datetime | None = None) -> RuleChangeRow:
    """Return a change as this user may see it. A forged change has only its id, its time and whether it is open."""
    is_authentic = row.is_authentic
    if not is_authentic:
        state = row.state if row.state in RuleChange.State.values else RuleChange.State.OPEN
        row = RuleChange(id=row.pk, given={}, told=[], person=0, made_at=row.made_at, state=state)
    return RuleChangeRow.of(
        row,
        told=[ToldRow(**{name: each[name] for name in ToldRow.model_fields}) for each in row.told],
        is_late=is_authentic and row.is_late(now or database_now()),
        is_authentic=is_authentic,
        may_agree=is_authentic and row.may_second(user),
        is_own=is_authentic and user.pk == row.person,
    )


@badge("changes")
def count_open(held: frozenset[str]) -> Counted:
    """Return the number of open changes, for the navigation."""
    return Counted.of(RuleChange.objects.filter(state=RuleChange.State.OPEN), to=BADGE_TO)


def guards_row(ticked: Sequence[str] | None = None) -> GuardsRow:
    """Return the setting, with the families in `ticked` if given. With a forged row, all families need two people."""
    families, setting = guarded_families() if ticked is None else ticked, read_setting()
    return GuardsRow(
        families=[GuardRow(family=name, words=text, needs_two=name in families) for name, text in FAMILIES.items()],
        is_damaged=setting is not None and not setting.is_authentic,
    )


def trial_of(row: RuleChange) -> tuple[str, dict[str, Any]] | None:
    """Return the URL that previews a proposed change, and the fields of its form; None if there is none.

    As in a form that a browser submits, unticked boxes are left out.
    """
    if not row.is_authentic or row.act not in acts or not (address := acts[row.act].trial):
        return None
    given = (row.given.get("body") or {}).items()
    body = {name: "on" if value is True else value for name, value in given if value is not False and name != "seen"}
    return address, {"name": row.given.get("name", ""), **body}
