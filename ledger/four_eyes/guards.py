"""Setting which rules two people change."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from pydantic import Field

from ledger.accounts import PROOF
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import Forbidden, InvalidInput
from ledger.four_eyes.changes import account_of, holds
from ledger.four_eyes.guard import second
from ledger.four_eyes.known import FAMILIES, GUARDS, SUPERUSER, hold, needs_of, standing
from ledger.models import FourEyes
from ledger.web.bodies import Strict

_LAST = 2**63 - 1


class GuardsBody(Strict):
    """All that two people change from now on."""

    families: list[str] = Field(max_length=20)
    justification: str = ""


@second(GUARDS, needs=SUPERUSER)
@transaction.atomic
def require(body: GuardsBody, *, by: Actor) -> FourEyes:
    """Say which rules two people change from now on: those and no others. An act that is under way counts as before.
    Raises Forbidden, InvalidInput for what there isn't and where there are no two who could, JustificationRequired."""
    if by.auth != "shell" and not holds(account_of(by), SUPERUSER):
        raise Forbidden("Only an administrator says which rules two people change.")
    why = justified("Saying which rules two people change", body.justification)
    hold(is_alone=True)
    last = standing()
    wanted = sorted(set(body.families))
    for family in wanted:
        if family not in FAMILIES:
            raise _wrong(f"names {family[:40]!r}, which there isn't", f"some of {', '.join(FAMILIES)}")
    before = sorted(last.families) if last is not None else []
    if wanted == before and (last is None or last.is_genuine):
        raise _wrong("says what is so already", "others, or none")
    if wanted and "roles" not in wanted:
        raise _wrong("leaves out roles: whoever gives roles alone makes a second person", "roles too")
    for family in wanted:
        for needs in needs_of(family):
            if _able(needs) < 2:
                raise _wrong(
                    f"names {family}, which fewer than two people could change ({needs})",
                    "give a second person an account for it first",
                )
    if last is not None and last.n >= _LAST:
        raise Forbidden("A row that was written past this installation has the last number: the owner takes it away.")
    row = FourEyes(n=1 if last is None else last.n + 1, families=wanted, set_by=by.ref, at=database_now())
    row.seal()
    row.save(force_insert=True)
    acted(
        "four_eyes", by=by, subject="rules", justification=why, before={"families": before}, after={"families": wanted}
    )
    return row


def _able(needs: str) -> int:
    """How many accounts could do it, counted to two."""
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
