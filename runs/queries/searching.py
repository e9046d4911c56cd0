"""Search of runs by words and by attributes, for lists. An app provides it (`Feature.search`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from ledger.errors import DurableAgentsError
from ledger.web.seeing.viewers import Viewer
from runs import features
from runs.queries.expressions import Misread

if TYPE_CHECKING:
    from runs.features import RunSearch

MAX_FOUND = 1000  # limit of runs that a search by words finds


class BadSearch(DurableAgentsError):
    """The search or sort expression is invalid, or no app provides search. Nothing was searched."""

    status, code, title = 400, "bad-search", "Invalid search"

    def __init__(self, field: str, misread: Misread) -> None:
        at = f"at character {misread.at}: " if field == "where" else ""
        where = f" at character {misread.at}" if field == "where" else ""
        subject, fix = ("order" if field == "sort" else "search"), misread.fix[:1].upper() + misread.fix[1:]
        super().__init__(
            f"The {subject} {misread.problem}{where}. {fix}.",
            errors=[{"field": field, "problem": f"{at}{misread.problem}", "fix": misread.fix}],
            at=misread.at,
        )
        self.field = field


@dataclass(frozen=True, slots=True)
class Match:
    """A found run, with the fields by which lists sort and count."""

    id: UUID
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Runs that match, newest first, at most `MAX_FOUND`. `is_cut` means that there may be more."""

    matches: list[Match]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class AttributeQuery:
    """A search by attributes: an expression (`where`), an order (`sort`), or both, for agents with this name or
    name@version. At least one of `arms` (conditions on a run's columns) must be met. `among` limits the search to these
    runs."""

    where: str
    sort: str
    agent: str
    arms: Sequence[Mapping[str, str]]
    among: Sequence[UUID] | None
    who: Viewer


# Returns a page of a search, given its size and cursor ("" for the first): the runs in order, and the cursor of the
# next page, "" on the last. None for the cursor of another list.
AttributePages = Callable[[int, str], tuple[list[UUID], str] | None]


def run_search(field: str) -> RunSearch:
    """Return the search of this installation.
    If there is none, raises BadSearch, which names the parameter."""
    if (found := features.only(lambda each: each.search)) is None:
        raise BadSearch(field, Misread(1, "is not possible: no app in INSTALLED_APPS searches runs", f"omit {field}"))
    return found
