"""What somebody says with a decision, and how much of it is taken: the API's body, and the inbox's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ledger.append import MAX_JUSTIFICATION
from ledger.web.bodies import Strict


class DecisionBody(Strict):
    """A decision names the plan that was seen, so that it can't be about another one."""

    verdict: Literal["approve", "reject"]
    plan_hash: Annotated[str, Field(max_length=200)]
    justification: Annotated[str, Field(max_length=MAX_JUSTIFICATION)] = ""
    arguments: Annotated[
        dict[str, Any] | None,
        Field(description="With *approve*: what goes out in the place of what was asked; those that change, or all."),
    ] = None
