"""The frame of every page: sections with their counts, notices, and accounts to switch to.

They are declared in `durableagents/navigation.py`, which wires the apps together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ledger.web.roles import EVERY, role_in
from ledger.web.tally import BADGE_TO, Tally


@dataclass(frozen=True, slots=True)
class Number:
    """A count next to a section: the name of the count in the tally, its text for screen readers, and its tone."""

    badge: str
    words: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the navigation.

    `name` is the section's name in its pages, `view` the URL's name. The section is shown to holders of one of `roles`,
    and to holders of `permission`, so that administrators don't need a role. Sections with `is_rare` move
    to "More" if there are many entries. `help` is the page of the documentation about the section, such as
    "how-to/approve".
    """

    name: str
    label: str
    view: str
    roles: frozenset[str] = frozenset(EVERY)
    number: Number | None = None
    permission: str = ""
    is_rare: bool = False
    help: str = "index"


@dataclass(frozen=True, slots=True)
class SectionPage:
    """A page that an app adds, with a link on the page `on` or in the menu of the reader's account (`account`).

    The link is shown to holders of one of `roles`, to everybody if there are none, or to administrators only.
    """

    on: str
    label: str
    view: str
    roles: frozenset[str] = frozenset(EVERY)
    is_for_admins: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A section as one reader sees it, with its count: "99+" beyond the limit, empty for none."""

    section: Section
    count: str = ""
    is_more: bool = False  # shown under "More" in a wide window


MAX_IN_A_ROW = 6


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice on top of every page, and the page with details."""

    head: str
    text: str
    view: str
    more: str


_sections: list[Section] = []
_notices: list[Callable[[], list[Notice]]] = []
_accounts: list[Callable[[], list[Any]]] = []
_pages: dict[tuple[str, str], SectionPage] = {}


def declare(
    sections: Iterable[Section], accounts: Callable[[], list[Any]], notices: Iterable[Callable[[], list[Notice]]]
) -> None:
    """Set the frame that every page shows around its content, replacing earlier declarations."""
    _sections[:] = sections
    _accounts[:] = [accounts]
    _notices[:] = notices


def entries(held: frozenset[str], tally: Tally, may: Callable[[str], bool]) -> list[Entry]:
    """Return the sections for a reader with these roles; `may` tells whether they have a permission.

    Readers without a role see no counts, because counts depend on roles.
    """
    known = [(one, role_in(one.roles, held) is not None) for one in _sections]
    visible = [(one, by_role) for one, by_role in known if by_role or (one.permission and may(one.permission))]
    return [
        Entry(
            one,
            shown_count(tally.badge(one.number.badge), BADGE_TO) if one.number and by_role else "",
            one.is_rare and len(visible) > MAX_IN_A_ROW,
        )
        for one, by_role in visible
    ]


def help_about(name: str) -> str:
    """Return the page of the documentation about a section; its first page if there is none."""
    return next((one.help for one in _sections if one.name == name), "index")


def add_pages(*pages: SectionPage) -> None:
    """Add links to other apps' pages, or replace those of the same view."""
    _pages.update({(page.on, page.view): page for page in pages})


def pages_on(page: str, held: frozenset[str], *, is_admin: bool = False) -> list[SectionPage]:
    """Return the links that apps add to a page, for a reader with these roles."""

    def may_see(each: SectionPage) -> bool:
        return is_admin if each.is_for_admins else not each.roles or role_in(each.roles, held) is not None

    return [each for each in _pages.values() if each.on == page and may_see(each)]


def accounts() -> list[Any]:
    return [account for each in _accounts for account in each()]


def notices() -> list[Notice]:
    return [notice for each in _notices for notice in each()]


def shown_count(number: int, to: int) -> str:
    """Return a count for the navigation: "99+" beyond `to`, empty for none."""
    return "" if not number else str(number) if number <= to else f"{to}+"
