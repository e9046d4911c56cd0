"""Bodies of decisions, for the API and the inbox's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from approvals.queues.acts import Most
from approvals.queues.who import wrong
from ledger.web.bodies import Justified, NoFlag, Strict
from runs.engine.gating.proof import AMOUNT, TARGET
from runs.services.bodies import Moment

MAX_TIMES = 1000  # limit for the calls that a standing approval covers


class AgainBody(Strict):
    """A standing approval given with the decision: further identical calls pass without asking.

    It is limited by `times`, by `sum` (required if the call names an amount), by scope and by time.
    """

    times: Annotated[
        int, Field(strict=False, ge=1, le=MAX_TIMES, description="Number of further calls it covers."), NoFlag
    ]
    until: Moment = Field(description="Time when it expires.")
    sum: Annotated[
        Most | None, Field(description="Total amount of these calls; required if the call names an amount.")
    ] = None
    scope: Annotated[Literal["agent", "run"], Field(description="All runs of the agent, or only this run.")] = "agent"


class DecisionBody(Justified):
    """A decision on the plan that the caller has read, named by its hash."""

    verdict: Annotated[
        Literal["approve", "reject", "fail", "abstain"],
        Field(
            description="approve: the last approval required lets the call through. reject: the agent learns "
            "the reason and may ask again. fail: the run fails. abstain: no opinion; the person "
            "can't vote on this stage again."
        ),
    ]
    plan_hash: Annotated[str, Field(max_length=200)] = Field(
        description="`plan_hash` of the approval that was read. If the plan has changed, the decision is refused."
    )
    stage: Annotated[int | None, Field(ge=1, le=100, description="The stage that was read, starting at 1.")] = None
    typed_amount: Annotated[
        str, Field(max_length=200, description="The amount, typed by the approver where the approval requires it.")
    ] = ""
    typed_target: Annotated[
        str, Field(max_length=400, description="The target, typed by the approver where the approval requires it.")
    ] = ""
    arguments: Annotated[
        dict[str, Any],
        Field(description="With *approve*: arguments that replace the requested ones; only the changed ones, or all."),
    ] = {}
    again: Annotated[
        AgainBody | None,
        Field(description="With *approve*: let further identical calls through without asking, within these limits."),
    ] = None

    @property
    def changes_arguments(self) -> bool:
        return "arguments" in self.model_fields_set

    @property
    def typed(self) -> dict[str, str]:
        return {AMOUNT: self.typed_amount, TARGET: self.typed_target}


class DecisionForm(DecisionBody):
    """A decision and, with an approval, how often and until when identical calls pass without asking."""

    again_times: Annotated[int | None, Field(strict=False, ge=1, le=MAX_TIMES)] = None
    again_until: Moment | None = None
    again_sum: Most | None = None
    again_scope: Literal["agent", "run"] = "agent"

    @property
    def asked_again(self) -> AgainBody | None:
        """Return the form's standing approval; None if empty. Raises InvalidInput if incomplete."""
        if self.again_times is None and self.again_until is None and self.again_sum is None:
            return None
        if self.again_times is None:
            raise wrong(
                "again_times", "is missing", "enter the number of calls, or clear all fields", "“Number of calls”"
            )
        if self.again_until is None:
            raise wrong("again_until", "is missing", "enter an end time, or clear all fields", "“Expires”")
        return AgainBody(times=self.again_times, until=self.again_until, sum=self.again_sum, scope=self.again_scope)
