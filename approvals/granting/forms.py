"""The console's form of a decision: its fields lie flat, and some of them say that the same again is allowed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from approvals.bodies import AgainBody, DecisionBody
from approvals.brief import Brief
from approvals.grants.terms import MOST_TIMES, Asked, Bounds, asked_in, bounds_in
from approvals.policy import No, Sum, in_ones_own_right
from approvals.queues.bodies import Most
from approvals.queues.who import wrong
from ledger.errors import DurableAgentsError
from ledger.web.page_forms import Refused
from runs.services.bodies import Moment

FIELDS = ("again_times", "again_until", "again_sum")


class DecisionForm(DecisionBody):
    """A decision, and with a yes how often and until when the same is let through without asking."""

    again_times: Annotated[int | None, Field(strict=False, ge=1, le=MOST_TIMES)] = None
    again_until: Moment | None = None
    again_sum: Most | None = None
    again_scope: Literal["agent", "run"] = "agent"

    @property
    def asked_again(self) -> AgainBody | None:
        """What of it is about the same again; None where nothing was filled in. Raises InvalidInput for a half of
        it."""
        if all(getattr(self, name) is None for name in FIELDS):
            return None
        if self.again_times is None:
            raise wrong("again_times", "is missing", "how many further calls, or empty all of it", "“How many more”")
        if self.again_until is None:
            raise wrong("again_until", "is missing", "until when, or empty all of it", "“Until when”")
        return AgainBody(times=self.again_times, until=self.again_until, sum=self.again_sum, scope=self.again_scope)


def offer(opened: Brief) -> dict[str, Any] | None:
    """What a case's page offers of it to whoever may allow the same again; None to anybody else. For words: it is
    judged anew."""
    if not opened.is_open or isinstance(in_ones_own_right(opened.facts), No):
        return None
    bounds = bounds_in(opened.facts.queue.again) if opened.facts.queue is not None else None
    if bounds is None or opened.wanted.as_json():
        return None
    try:
        asked = asked_in(opened.plan)
    except ValueError:
        return None
    return {"bounds": bounds, "asked": asked, "most": _most(bounds, asked)}


def _most(bounds: Bounds, asked: Asked) -> str:
    """The most in all, in words; empty where the queue says none, or the call names no amount."""
    return str(Sum(bounds.most, asked.amount.currency)) if asked.amount and bounds.most is not None else ""


def seen(error: DurableAgentsError) -> DurableAgentsError:
    """The same, with what is wrong told of the form's fields: what is one thing in a body lies flat there."""
    for each in error.extra.get("errors", []):
        each["field"] = each["field"].replace("again.", "again_", 1)
    return error


def typed_again(refused: Refused | None) -> dict[str, str]:
    """What was typed, where the decision was refused."""
    return {} if refused is None else {name: refused.typed.get(name, "") for name in (*FIELDS, "again_scope")}
