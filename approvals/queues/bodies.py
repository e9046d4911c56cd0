"""What somebody sends to change a queue, a limit or a deputy, and how much of it is taken: API bodies and forms."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from ledger.web.bodies import NoFlag, PlainZero
from runs.services.bodies import Moment, SteerBody

Name = Annotated[str, Field(max_length=200)]
Currency = Annotated[str, Field(max_length=10)]
# To the millionth; NaN, infinity and what is below nothing are none.
Most = Annotated[
    Decimal, Field(strict=False, ge=0, le=10**15, decimal_places=6, allow_inf_nan=False), NoFlag, PlainZero
]


class QueueBody(SteerBody):
    """A queue. `role` names the group whose holders decide there; `needs_amount`: whoever has a limit approves nothing
    that names no amount."""

    name: Name
    title: Name
    role: Name
    currency: Currency = "USD"
    needs_amount: bool = False


class QueueChangeBody(SteerBody):
    """What is named is set anew, the rest stays."""

    title: Name | None = None
    role: Name | None = None
    currency: Currency | None = None
    needs_amount: bool | None = None


class LimitBody(SteerBody):
    """The most that a person (or, with none named, whoever holds the role and has no limit of their own) may approve
    alone. Null: as much as they like."""

    person: Name = ""
    most: Most | None
    currency: Currency = ""


class ProofBody(SteerBody):
    """What a yes has to show, for calls above an amount (in the queue's currency) or from a risk on; with neither, for
    each. `minutes`: within how many its person has shown who they are, by `second_factor` or by a password; 0: that
    isn't asked. `type_amount`, `type_target`: they type what they let through. With none of these nothing is asked any
    more."""

    minutes: Annotated[int, Field(strict=False, ge=0, le=24 * 60), NoFlag] = 0
    second_factor: bool = False
    type_amount: bool = False
    type_target: bool = False
    above: Most | None = None
    risk: Literal["", "low", "medium", "high"] = ""


MOST_REASONS, LONGEST_REASON = 20, 200


class ReasonsBody(SteerBody):
    """Short reasons that are offered to whoever decides there, in their order; with none, none are."""

    reasons: Annotated[list[Annotated[str, Field(max_length=LONGEST_REASON)]], Field(max_length=MOST_REASONS)]


class LiftBody(SteerBody):
    """Whose limit ends: a person's own, or with none named the role's."""

    person: Name = ""


class DeputyBody(SteerBody):
    """Who stands in for whom: for oneself if no principal is named, at all queues if none is, from now on if no
    beginning is."""

    deputy: Name
    principal: Name = ""
    queue: Name = ""
    starts_at: Moment | None = None
    ends_at: Moment
