"""Bodies of decisions, for the API and the inbox's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from approvals.grants import MOST_TIMES
from approvals.queues.acts import Most
from ledger.append import MAX_JUSTIFICATION
from ledger.web.bodies import NoFlag, Strict
from runs.engine.gate.proof import AMOUNT, TARGET
from runs.services.bodies import Moment


class AgainBody(Strict):
    """The same again: so many `times`, of so much in all (`sum`, where the call names an amount), for all runs of the
    agent or for this one, until when."""

    times: Annotated[int, Field(strict=False, ge=1, le=MOST_TIMES, description="How many further calls."), NoFlag]
    until: Moment
    sum: Annotated[
        Most | None, Field(description="Of all of them together; needed where the call names an amount.")
    ] = None
    scope: Annotated[Literal["agent", "run"], Field(description="All runs of the agent, or this one alone.")] = "agent"


class DecisionBody(Strict):
    """A decision names the plan that was seen, so that it can't be about another one."""

    verdict: Annotated[
        Literal["approve", "reject", "fail", "abstain"],
        Field(
            description="approve: a yes; the last one that is needed lets the call through. reject: the agent is told "
            "why, and may ask again. fail: the run fails by it. abstain: neither; whoever abstains has had their say."
        ),
    ]
    plan_hash: Annotated[str, Field(max_length=200)]
    stage: Annotated[int | None, Field(ge=1, le=100, description="The stage that was read, from 1 on.")] = None
    typed_amount: Annotated[
        str, Field(max_length=200, description="The amount, typed anew by whoever says yes where that is asked.")
    ] = ""
    typed_target: Annotated[str, Field(max_length=400, description="Likewise whom or what it is about.")] = ""
    justification: Annotated[str, Field(max_length=MAX_JUSTIFICATION)] = ""
    arguments: Annotated[
        dict[str, Any],
        Field(description="With *approve*: what goes out in the place of what was asked; those that change, or all."),
    ] = {}
    again: Annotated[
        AgainBody | None,
        Field(description="With *approve*: let what is the same through without asking, so often, until when."),
    ] = None

    @property
    def changes_arguments(self) -> bool:
        return "arguments" in self.model_fields_set

    @property
    def typed(self) -> dict[str, str]:
        return {AMOUNT: self.typed_amount, TARGET: self.typed_target}
