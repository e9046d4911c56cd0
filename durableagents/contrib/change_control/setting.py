"""The setting that says which rules need two people to change."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection, transaction
from pydantic import Field

from durableagents.contrib.change_control.models import FourEyes
from ledger.accounts import PROOF
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import FAMILIES, OTHER_NEEDS, SUPERUSER, account_of, acts, holds, two_person
from ledger.clock import database_now
from ledger.errors import Forbidden, InvalidInput
from ledger.protected import protect
from ledger.web.bodies import Justified

GUARDS = "guards"  # the family of this setting itself
# This lock is held exclusively to change the setting, and shared by acts that depend on it.
_LOCK = "hashtextextended('four eyes', 72)"

protect(FourEyes, "two-person rule", named_by="n")


def read_setting() -> FourEyes | None:
    """Return the setting in force, even if it was forged."""
    return FourEyes.objects.order_by("-n").first()


def guarded_families() -> frozenset[str]:
    """Return the families that need two people now.

    If the row was forged, these are all families, so that a forgery can't loosen the rules.
    """
    row = read_setting()
    if row is None:
        return frozenset()
    return frozenset(row.families if row.is_authentic else FAMILIES)


def is_guarded(family: str) -> bool:
    """Return whether changes of a family need two people.

    The setting itself needs two people as soon as any family does.
    """
    families = guarded_families()
    return bool(families) if family == GUARDS else family in families


def hold(*, is_alone: bool = False) -> None:
    """Keep the setting unchanged until the transaction ends.

    The transaction that changes the setting sets `is_alone`, which takes the lock exclusively.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock{'' if is_alone else '_shared'}({_LOCK})")


def needs_of(family: str) -> list[str]:
    """Return the roles and permissions that an account needs to be one of the two people for a family."""
    needs = {each.needs for each in acts.values() if each.family in (family, GUARDS)}
    return sorted(needs | {needed for of, needed in OTHER_NEEDS.items() if of == family})


_LAST = 2**63 - 1


class GuardsBody(Justified):
    """The complete set of rules that two people must change from now on."""

    families: list[str] = Field(max_length=20, description="Kinds of rules that need two people; all others need one.")


@two_person(GUARDS, needs=SUPERUSER)
@transaction.atomic
def require(body: GuardsBody, *, by: Actor) -> FourEyes:
    """Set the families of rules that need two people. Acts in progress follow the previous setting.

    Raises Forbidden, JustificationRequired; and InvalidInput for an unknown family, or if fewer than two people could
    act.
    """
    if by.auth != "shell" and not holds(account_of(by), SUPERUSER):
        raise Forbidden("Only an administrator may set which rules two people must change.")
    why = justified("Setting which rules need two people", body.justification)
    hold(is_alone=True)
    last = read_setting()
    wanted = sorted(set(body.families))
    for family in wanted:
        if family not in FAMILIES:
            raise _wrong(f"names {family[:40]!r}, which does not exist", f"some of {', '.join(FAMILIES)}")
    before = sorted(last.families) if last is not None else []
    if wanted == before and (last is None or last.is_authentic):
        raise _wrong("changes nothing", "others, or none")
    if wanted and "roles" not in wanted:
        raise _wrong("leaves out roles: a person who may give roles alone could create the second person", "roles too")
    for family in wanted:
        for needs in needs_of(family):
            if _count_able(needs) < 2:
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


def _count_able(needs: str) -> int:
    found = 0
    people = User.objects.filter(is_active=True).annotate(proof=PROOF).order_by("-is_superuser", "pk")
    for user in people.iterator(chunk_size=200):
        found += holds(user, needs)
        if found == 2:
            break
    return found


def _wrong(problem: str, fix: str) -> InvalidInput:
    return InvalidInput(
        f"Invalid input: families {problem}.", errors=[{"field": "families", "problem": problem, "fix": fix}]
    )
