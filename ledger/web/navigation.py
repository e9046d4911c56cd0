"""What stands around every page, as the apps above declare it: the sections with their numbers, and accounts to go on
as.

The common ground names no section itself: whoever wires the apps together (`durableagents/navigation.py`) declares
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ledger.web.roles import EVERY, role_in
from ledger.web.tally import BADGE_TO, Tally


@dataclass(frozen=True, slots=True)
class Number:
    """A number beside a section: which of the tally's badges, what is said of it to who can't see it, and its tone."""

    badge: str
    words: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A place in the navigation. `name` is what its pages call their section, `view` the address's name. It is shown to
    holders of one of `roles` and of the `permission`: administrators need no role. One that `is_rare` is under "More"
    where the navigation has many entries."""

    name: str
    label: str
    view: str
    roles: frozenset[str] = frozenset(EVERY)
    number: Number | None = None
    permission: str = ""
    is_rare: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A section as one reader sees it, with its number: "99+" beyond what is counted, empty for none."""

    section: Section
    count: str = ""
    is_more: bool = False  # under "More" in a wide window


MAX_IN_A_ROW = 6


@dataclass(frozen=True, slots=True)
class Notice:
    """What everybody is told on every page, above all else, and the page that says more."""

    head: str
    text: str
    view: str
    more: str


_sections: list[Section] = []
_notices: list[Callable[[], list[Notice]]] = []
_accounts: list[Callable[[], list[Any]]] = []


def declare(
    sections: Iterable[Section], accounts: Callable[[], list[Any]], notices: Callable[[], list[Notice]]
) -> None:
    """What every page has around it; what was declared before is replaced."""
    _sections[:] = sections
    _accounts[:] = [accounts]
    _notices[:] = [notices]


def entries(held: frozenset[str], tally: Tally, may: Callable[[str], bool]) -> list[Entry]:
    """Return the sections for a reader with these roles, in their order; `may` says whether they have a permission.
    Readers without a role are shown no numbers: those are counted by roles."""
    known = [(one, role_in(one.roles, held) is not None) for one in _sections]
    shown = [(one, by_role) for one, by_role in known if by_role or (one.permission and may(one.permission))]
    return [
        Entry(
            one,
            shown_count(tally.badge(one.number.badge), BADGE_TO) if one.number and by_role else "",
            one.is_rare and len(shown) > MAX_IN_A_ROW,
        )
        for one, by_role in shown
    ]


def accounts() -> list[Any]:
    """Accounts that the reader may go on as; none outside the demo."""
    return [account for each in _accounts for account in each()]


def notices() -> list[Notice]:
    return [notice for each in _notices for notice in each()]


def shown_count(number: int, to: int) -> str:
    """A number for the navigation: "99+" beyond `to`, empty for none."""
    return "" if not number else str(number) if number <= to else f"{to}+"
