"""Proposed changes of rules as pages and the API show them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ledger.clock import database_now
from ledger.four_eyes.changes import is_late, may_second
from ledger.four_eyes.known import FAMILIES, guarded_families, standing
from ledger.models import RuleChange

PAGE = 50
_TRIED = ("approvals.policies.acts.create", "approvals.policies.acts.change")


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that it would set another way."""

    what: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A change. `parts` are what it changes, by the subject of each record; `tries` what a policy would be tried
    with."""

    row: RuleChange
    title: str
    parts: list[tuple[str, list[Part]]]
    is_late: bool
    is_genuine: bool
    may_agree: bool
    is_own: bool
    tries: dict[str, Any]

    @property
    def is_open(self) -> bool:
        """Whether somebody can do something with it."""
        return self.row.state == RuleChange.State.OPEN


def newest(user: Any, *, state: str = "") -> list[Shown]:
    """The newest, open ones first."""
    rows = RuleChange.objects.all() if not state else RuleChange.objects.filter(state=state)
    found = sorted(rows.order_by("-made_at")[:PAGE], key=lambda row: row.state != RuleChange.State.OPEN)
    return [one(row, user) for row in found]


def one(row: RuleChange, user: Any) -> Shown:
    """A change as somebody sees it."""
    return Shown(
        row, title=title_of(row), parts=[(each["subject"], parts_of(each)) for each in row.told],
        is_late=is_late(row, database_now()), is_genuine=row.is_genuine, may_agree=may_second(user, row),
        is_own=user.pk == row.person, tries=_tries(row),
    )  # fmt: skip


def title_of(row: RuleChange) -> str:
    """In a few words: what is done to what."""
    last: dict[str, Any] = row.told[-1] if row.told else {"action": row.act, "subject": ""}
    return f"{str(last['action']).replace('_', ' ')}: {last['subject']}"


def parts_of(told: dict[str, Any]) -> list[Part]:
    """What is another way after than before."""
    before, after = told["before"], told["after"]
    return [
        Part(name.replace("_", " "), _said(before.get(name)), _said(after.get(name)))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def guards() -> list[tuple[str, str, bool]]:
    """Each family of rules, in words, and whether two people change it."""
    families = guarded_families()
    return [(name, words, name in families) for name, words in FAMILIES.items()]


def is_damaged() -> bool:
    """Whether what says which rules two people change was written past us: then two change all."""
    row = standing()
    return row is not None and not row.is_genuine


def _said(value: Any) -> str:
    if value is None or value == "" or value == []:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tries(row: RuleChange) -> dict[str, Any]:
    if row.act not in _TRIED:
        return {}
    body = dict(row.given.get("body") or {})
    body.pop("seen", None)
    return {"name": row.given.get("name", ""), **body}
