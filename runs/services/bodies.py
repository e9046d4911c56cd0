"""Request bodies of actions on runs, shared by the API and the console's forms."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Discriminator, Field
from pydantic import Tag as Form
from pydantic_core import PydanticCustomError

from ledger.append import MAX_JUSTIFICATION
from ledger.web.bodies import ARRAY, OBJECT, NoFlag, PlainZero, Strict
from ledger.web.text_safety import is_hidden
from runs.engine.attributes import MOST as MOST_ATTRIBUTES
from runs.engine.budget import Budget

OF_SCHEDULE = "schedule:"  # prefix of the business keys of a schedule's runs
Tag = Annotated[str, Field(min_length=1, max_length=200)]
Tags = Annotated[
    Annotated[list[Tag], Field(max_length=50), Form(ARRAY)]
    | Annotated[dict[Tag, Tag], Field(max_length=50), Form(OBJECT)],
    Discriminator(
        lambda given: {list: ARRAY, dict: OBJECT}.get(type(given)),
        custom_error_type="tags_type",
        custom_error_message="is neither an array of texts nor an object with texts",
    ),
]


def _as_text(given: Any) -> Any:
    """Accept times only as text: the unit of a number would be ambiguous."""
    if not isinstance(given, (str, datetime)):
        raise PydanticCustomError("moment_type", "is no text with a time in it")
    return given


def _as_key(given: str) -> str:
    if given != given.strip() or any(character == "\n" or is_hidden(character) for character in given):
        raise PydanticCustomError("key_hidden", "holds what can't be seen, or begins or ends with a blank")
    if given.startswith(OF_SCHEDULE):
        raise PydanticCustomError("key_reserved", "is of the schedules' own")
    return given


Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_as_text)]
# At most what search supports, without invisible characters, and outside the schedules' prefix.
BusinessKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_as_key)]


class FirstSignal(Strict):
    """A signal that goes to the run that answers the start."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    payload: Any = None
    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None


Attributes = Annotated[dict[str, Any], Field(max_length=MOST_ATTRIBUTES)]


class StartBody(Strict):
    """`agent` is a name (its newest version) or `name@version`; `input` and `attributes` must fit what that version
    declares."""

    agent: Annotated[str, Field(min_length=1, max_length=200)]
    input: Any
    tags: Tags = []
    budget: Budget | None = None
    business_key: BusinessKey | None = Field(
        default=None, description="Of the caller's business, an invoice say: one run of an agent and a key lives."
    )
    on_conflict: Literal["refuse", "join", "replace", "queue", "debounce"] | None = Field(
        default=None, description="What happens where a run of the key lives; left out: refuse, with a signal join."
    )
    debounce_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    start_at: Moment | None = Field(default=None, description="Not begun before.")
    start_before: Moment | None = Field(default=None, description="Not begun by then, it ends as cancelled.")
    signal: FirstSignal | None = Field(
        default=None, description="Sent to the run that answers: a new one, or a joined."
    )
    attributes: Attributes = {}
    priority: Annotated[int, Field(ge=-100, le=100, description="Claimed before those of a lower one; 0.")] = 0


class ScheduleBody(Strict):
    """Starts by the clock: what is started, and by which cron line in which time zone."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    agent: Annotated[str, Field(min_length=1, max_length=200)]
    input: Any
    cron: Annotated[str, Field(min_length=1, max_length=200, description="Minute, hour, day, month, day of the week.")]
    zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    missed: Literal["skip", "once", "all"] = Field(
        default="skip", description="What becomes of planned times that nobody came to in time."
    )
    overlap: Literal["skip", "queue", "replace", "allow"] = Field(
        default="skip", description="What happens while the run before has not ended."
    )
    tags: Tags = []
    budget: Budget | None = None


MOST_AT_ONCE = 200


class BulkBody(Strict):
    """Many starts, each whole or not at all, whatever becomes of the others."""

    runs: Annotated[list[Any], Field(min_length=1, max_length=MOST_AT_ONCE, description="Each as of a start.")]


class SteerBody(Strict):
    """Why: a person's act on a run always says so."""

    justification: Annotated[str, Field(max_length=MAX_JUSTIFICATION)] = ""


class SteerRunBody(SteerBody):
    """What is done to one run."""

    newest: bool = Field(
        default=False,
        description="Do it to the newest run that this one goes on as, instead of refusing it for one that went on.",
    )


Effects = Literal["undo", "leave"]
_EFFECTS = "What becomes of effects that can be undone; has to be said where there are any."


class CancelBody(SteerRunBody):
    """What is said with the end of a run."""

    effects: Effects | None = Field(default=None, description=_EFFECTS)


class CancelUndoableBody(SteerRunBody):
    """The same, of a run with effects that can be undone."""

    effects: Effects = Field(description=_EFFECTS)


class CancelForm(SteerBody):
    """The same, from a page."""

    effects: Effects | None = None


class BudgetBody(SteerBody):
    """Caps to be set anew. One that is null is lifted, one that isn't named stays."""

    budget: Budget
    if_caps: Budget | None = Field(
        default=None, description="Caps as they were seen: where one of them is another by now, nothing is set (409)."
    )


# Dollars to the millionth, or a whole number of any other resource.
Limit = Annotated[
    Decimal, Field(strict=False, ge=0, le=10**15, decimal_places=6, allow_inf_nan=False), NoFlag, PlainZero
]
PoolName = Annotated[str, Field(min_length=1, max_length=100)]


class PoolBody(SteerBody):
    """A limit over a period that all calls of a scope share. `whose` names the tag, agent, person or provider."""

    name: PoolName
    scope: Literal["all", "tag", "agent", "person", "provider"]
    whose: Annotated[str, Field(max_length=200)] = ""
    resource: Literal["usd", "tokens_in", "tokens_out", "model_calls", "tool_calls"]
    limit: Limit
    period: Literal["day", "week", "month"]
    zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"


class PoolChangeBody(SteerBody):
    """What is named is set anew. With `if_limit`, the limit as it was seen, nothing is where it is another by now."""

    name: PoolName | None = None
    limit: Limit | None = None
    if_limit: Limit | None = None


class ModelsBody(SteerBody):
    """Whom to ask from now on, in this order; of all assistants, unless one is named."""

    models: Annotated[list[Annotated[str, Field(min_length=1, max_length=300)]], Field(min_length=1, max_length=8)]
    assistant: Annotated[str, Field(max_length=200)] = ""


Verdict = Literal["happened", "did_not", "fail"]


class ReconcileBody(SteerBody):
    """What became of a call whose outcome is unknown."""

    verdict: Verdict
    receipt: Any = None
    sender_is_gone: bool = Field(
        default=False, description="Attests that nothing runs any more of a worker that was given up without proof."
    )
    wait_id: Annotated[UUID, Field(strict=False)] | None = None
    agrees_with: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Where two people settle it: the number of the word that you agree with."
    )


class DoubtBody(SteerBody):
    """An act on one unknown outcome: taking back what one said of it, or having the other side asked."""

    wait_id: Annotated[UUID, Field(strict=False)]


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
