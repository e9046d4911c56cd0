"""What somebody says of an act on many runs: the API's body, and the console's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from ledger.web.bodies import Strict
from runs.engine.budget import Budget
from runs.services.bodies import Effects, SteerBody, Verdict

MOST_RUNS = 10_000
Action = Literal["pause", "resume", "cancel", "retry", "priority", "requeue", "budget", "reconcile"]
RunId = Annotated[UUID, Field(strict=False)]


class ChoiceBody(Strict):
    """Runs as the list finds them: what is left out isn't asked for."""

    state: Annotated[str, Field(max_length=200)] = ""
    agent: Annotated[str, Field(max_length=200)] = ""
    q: Annotated[str, Field(max_length=200)] = ""
    where: Annotated[str, Field(max_length=500)] = ""
    parent: Annotated[str, Field(max_length=200)] = ""


class BatchBody(SteerBody):
    """One act on many runs: on those that a filter finds now, or on those named. Which they are is frozen."""

    action: Action
    filter: ChoiceBody | None = Field(default=None, description="Or `runs`.")
    runs: Annotated[list[RunId], Field(min_length=1, max_length=MOST_RUNS)] | None = None
    effects: Effects | None = Field(default=None, description="Of a cancel: what becomes of what can be undone.")
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    budget: Budget | None = Field(
        default=None, description="Caps that are raised to this; higher ones stay, and so does what has no cap."
    )
    verdict: Verdict | None = Field(default=None, description="What became of each run's one unknown outcome.")
    receipt: Any = Field(default=None, description="Of what happened: the same for each.")
    sender_is_gone: bool | None = None
    start: bool = Field(default=True, description="False: only look what would become of it; start it later.")


class BatchForm(ChoiceBody, SteerBody):
    """The same, from a page whose runs its filter says."""

    action: Action
    effects: Effects | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    usd: Annotated[str, Field(max_length=40)] = ""
    model_calls: Annotated[str, Field(max_length=40)] = ""
    tool_calls: Annotated[str, Field(max_length=40)] = ""
    steps: Annotated[str, Field(max_length=40)] = ""
    verdict: Verdict | None = None
    receipt: Any = None


class BatchActBody(SteerBody):
    """Starting what was looked at, or stopping what is under way."""
