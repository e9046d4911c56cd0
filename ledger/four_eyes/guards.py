"""Set which rules need two people to change."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from pydantic import Field

from ledger.accounts import PROOF
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import Forbidden, InvalidInput, Proposed
from ledger.four_eyes.changes import account_of, holds, propose
from ledger.four_eyes.known import (
    FAMILIES,
    GUARDS,
    SUPERUSER,
    Guarded,
    acts,
    hold,
    is_beneath,
    is_guarded,
    needs_of,
    standing,
)
from ledger.models import FourEyes
from ledger.web.bodies import Justified

P = ParamSpec("P")
R = TypeVar("R")


def second(
    family: str, *, needs: str, moving: frozenset[str] = frozenset(), trial: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a service `(…, *, by)` that changes rules of a family. Where two people must change them, a person's call is
    proposed and raises Proposed, in addition to what the service itself raises."""

    def marked(act: Callable[P, R]) -> Callable[P, R]:
        known = Guarded(f"{act.__module__}.{act.__name__}", family, needs, act, moving, trial)
        acts[known.name] = known

        @functools.wraps(act)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            by: Any = kwargs["by"]
            if is_beneath.get() or not by.is_person or not is_guarded(family):
                return act(*args, **kwargs)
            raise Proposed(propose(known, known.packed(args, kwargs), by=by).pk)

        return guarded

    return marked


_LAST = 2**63 - 1


class GuardsBody(Justified):
    """The complete set of rules that two people must change from now on."""

    families: list[str] = Field(max_length=20, description="Kinds of rules that need two people; all others need one.")


@second(GUARDS, needs=SUPERUSER)
@transaction.atomic
def require(body: GuardsBody, *, by: Actor) -> FourEyes:
    """Set the families of rules that need two people. Acts already under way follow the previous setting. Raises
    Forbidden, JustificationRequired, InvalidInput for an unknown family or without two able people."""
    if by.auth != "shell" and not holds(account_of(by), SUPERUSER):
        raise Forbidden("Only an administrator may set which rules two people must change.")
    why = justified("Saying which rules two people change", body.justification)
    hold(is_alone=True)
    last = standing()
    wanted = sorted(set(body.families))
    for family in wanted:
        if family not in FAMILIES:
            raise _wrong(f"names {family[:40]!r}, which there isn't", f"some of {', '.join(FAMILIES)}")
    before = sorted(last.families) if last is not None else []
    if wanted == before and (last is None or last.is_authentic):
        raise _wrong("says what is so already", "others, or none")
    if wanted and "roles" not in wanted:
        raise _wrong("leaves out roles: a person who may give roles alone can make a second person", "roles too")
    for family in wanted:
        for needs in needs_of(family):
            if _able(needs) < 2:
                raise _wrong(
                    f"names {family}, which fewer than two people could change ({needs})",
                    "give a second person an account for it first",
                )
    if last is not None and last.n >= _LAST:
        raise Forbidden(
            "The row with the last possible number was not written by this installation. "
            "Ask the database's owner to remove it."
        )
    row = FourEyes(n=1 if last is None else last.n + 1, families=wanted, set_by=by.ref, at=database_now())
    row.seal()
    row.save(force_insert=True)
    acted(
        "four_eyes", by=by, subject="rules", justification=why, before={"families": before}, after={"families": wanted}
    )
    return row


def _able(needs: str) -> int:
    found = 0
    people = User.objects.filter(is_active=True).annotate(proof=PROOF).order_by("-is_superuser", "pk")
    for user in people.iterator(chunk_size=200):
        found += holds(user, needs)
        if found == 2:
            break
    return found


def _wrong(problem: str, fix: str) -> InvalidInput:
    return InvalidInput(
        f"That can't be: families {problem}.", errors=[{"field": "families", "problem": problem, "fix": fix}]
    )
