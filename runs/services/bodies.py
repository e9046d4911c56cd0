"""What somebody says with an act on a run, and how much of it is taken: the API's bodies, and the console's forms."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Discriminator, Field
from pydantic import Tag as Form

from ledger.append import MAX_JUSTIFICATION
from ledger.web.bodies import ARRAY, OBJECT, Strict
from runs.engine.budget.limits import Budget

Tag = Annotated[str, Field(min_length=1, max_length=200)]
Tags = Annotated[
    Annotated[list[Tag], Field(max_length=50), Form(ARRAY)]
    | Annotated[dict[Tag, Tag], Field(max_length=50), Form(OBJECT)],
    Discriminator(
        lambda given: {list: ARRAY, dict: OBJECT}.get(type(given)),
        custom_error_type="tags_type", custom_error_message="is neither an array of texts nor an object with texts",
    ),
]  # fmt: skip


class StartBody(Strict):
    """`agent` is a name (its newest version) or `name@version`; `input` must fit that version's schema."""

    agent: Annotated[str, Field(min_length=1, max_length=200)]
    input: Any
    tags: Tags = []
    budget: Budget | None = None


class SteerBody(Strict):
    """Why: a person's act on a run always says so."""

    justification: Annotated[str, Field(max_length=MAX_JUSTIFICATION)] = ""


class BudgetBody(SteerBody):
    """Caps to be set anew. One that is null is lifted, one that isn't named stays."""

    budget: Budget


class ReconcileBody(SteerBody):
    """What became of a call whose outcome is unknown."""

    verdict: Literal["happened", "did_not", "fail"]
    receipt: Any = None
    sender_is_gone: bool = Field(
        default=False, description="Attests that nothing runs any more of a worker that was given up without proof."
    )
    wait_id: Annotated[UUID, Field(strict=False)] | None = None


class SignalBody(Strict):
    """What to tell the run. With an `id` of the sender's own, a repeat is the same signal."""

    payload: Any = None
    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class MessageBody(Strict):
    """What to ask the run: `body` must fit what the agent's message takes. With an `id` of the sender's own, a repeat
    is the same message."""

    body: Any
    id: Annotated[str, Field(min_length=1, max_length=255)] | None = None


class AnswerBody(SteerBody):
    """`answer` must fit the question's schema. A reason is welcome and not required."""

    answer: Any
