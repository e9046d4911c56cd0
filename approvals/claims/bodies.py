"""What somebody sends to say that they are on a case."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ledger.web.bodies import Strict

MINUTES, MOST_MINUTES = 10, 60
_Minutes = Annotated[int, Field(ge=1, le=MOST_MINUTES, description="For how long, from now on.")]
_Claim = Annotated[
    int | None, Field(ge=1, le=2**53 - 1, description="The `id` of somebody else's claim that ends by this.")
]


class ClaimBody(Strict):
    """For how long, and in whose place if all places are taken."""

    minutes: _Minutes = MINUTES
    take_over: _Claim = None


class NoBody(Strict):
    """Nothing has to be said."""
