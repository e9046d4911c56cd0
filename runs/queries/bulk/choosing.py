"""The runs that a filter finds now, for an act on all of them: as its list shows them, to whoever looks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger.errors import InvalidInput
from runs import search
from runs.queries.run_list import Filters, ids_of, stretch
from runs.services.bulk.bodies import MOST_RUNS, BatchBody, ChoiceBody

_AT_ONCE = 1000
_MOST_LOOKS = 50  # into what attributes find


def chosen(body: BatchBody) -> tuple[list[UUID], dict[str, Any]]:
    """Which runs somebody means, one more than are taken where there are more; and how they were chosen, for the
    record. Raises InvalidInput."""
    if body.filter is None:
        return list(body.runs or []), {"runs": len(body.runs or [])}
    return found(body.filter), {"filter": {name: value for name, value in body.filter.model_dump().items() if value}}


def found(choice: ChoiceBody, *, most: int = MOST_RUNS + 1) -> list[UUID]:
    """All runs that fit, newest first. Raises InvalidInput for a filter that nobody can read: a list would show all
    there, and an act would be done to all; and for words that may be of more runs than a search looks at."""
    filters = Filters.of(choice.model_dump())
    misread = [name for name in ("state", "parent") if getattr(choice, name) and not getattr(filters, name)]
    if misread:
        problems = [
            {"field": f"filter.{name}", "problem": "not known", "fix": "as the list has it"} for name in misread
        ]
        raise InvalidInput(f"The filter can't be read: {', '.join(misread)}.", errors=problems)
    if filters.found.is_cut:
        fix = "look for an attribute instead, or name the runs"
        raise InvalidInput(
            f"A search looks at {search.MOST:,} runs, and more may fit.",
            errors=[{"field": "filter.q", "problem": "may fit more runs than a search looks at", "fix": fix}],
        )
    if filters.sought is not None:
        return _by_attributes(filters, most)
    if filters.q:
        return [one.id for one in filters.found.matches if not filters.states or one.state in filters.states][:most]
    return ids_of(filters, most)


def _by_attributes(filters: Filters, most: int) -> list[UUID]:
    sought, cursor, ids = filters.sought, "", list[UUID]()
    assert sought is not None
    for _ in range(_MOST_LOOKS):
        some = stretch(filters, sought, limit=min(_AT_ONCE, most - len(ids)), cursor=cursor)
        if some is None:
            break
        ids += [run.pk for run in some.runs]
        cursor = some.following
        if not cursor or len(ids) >= most:
            return ids
    fix = "narrow it, by state or agent"
    raise InvalidInput(
        "Too much would have to be looked through.",
        errors=[{"field": "filter", "problem": "finds too slowly", "fix": fix}],
    )
