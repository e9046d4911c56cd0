"""Request bodies of actions on runs, shared by the API and the console's forms."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Discriminator, Field
from pydantic import Tag as Form
from pydantic_core import PydanticCustomError

from ledger.web.bodies import ARRAY, OBJECT, Justification, Justified, Strict
from ledger.web.text_safety import is_hidden
from runs.engine.attributes import MAX_ATTRIBUTES
from runs.engine.budget import Budget

OF_SCHEDULE = "schedule:"  # prefix of the business keys of a schedule's runs
# Kinds of waits, and lengths of waiting time, by which a list of runs can be filtered.
WaitFilter = Literal["", "any", "overdue", "escalated"]
AgeFilter = Literal["", "1h", "8h", "1d", "7d"]
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

_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE | re.ASCII)


def _as_text(given: Any) -> Any:
    """Refuse times that are given as numbers, even within text, because their unit would be ambiguous."""
    if not isinstance(given, (str, datetime)) or (isinstance(given, str) and _NUMBER.fullmatch(given.strip())):
        raise PydanticCustomError("moment_type", "is not a text with a time")
    return given


def _in_range(given: datetime) -> datetime:
    try:
        given.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("moment_range", "is outside the years 1 to 9999 in UTC") from None
    return given


def _as_key(given: str) -> str:
    if given != given.strip() or any(character == "\n" or is_hidden(character) for character in given):
        raise PydanticCustomError("key_hidden", "holds invisible characters, or spaces around it")
    if given.startswith(OF_SCHEDULE):
        raise PydanticCustomError("key_reserved", "begins with schedule:, which is reserved for schedules")
    return given


Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_as_text), AfterValidator(_in_range)]


class RunFilter(Strict):
    """Filters of the run list; omit a filter to match all."""

    state: Annotated[str, Field(max_length=200)] = Field(
        default="", description="Only runs in these states, comma-separated."
    )
    agent: Annotated[str, Field(max_length=200)] = Field(
        default="", description="Only runs of this agent, with or without @version."
    )
    q: Annotated[str, Field(max_length=200)] = Field(
        default="", description="Only runs with these words in subject, tags, input, starter or ids."
    )
    where: Annotated[str, Field(max_length=500)] = Field(
        default="", description="Condition on attributes, such as `amount > 100`."
    )
    parent: Annotated[str, Field(max_length=200)] = Field(default="", description="Only child runs of this run.")
    wait: WaitFilter = Field(default="", description="Only runs with open waits, or with open waits of this kind.")
    older: AgeFilter = Field(default="", description="Only runs with an open wait of this age.")
    tag: Annotated[str, Field(max_length=200)] = Field(default="", description="Only runs with this tag.")
    business_key: Annotated[str, Field(max_length=200)] = Field(
        default="", description="Only runs with this key; needs `agent`."
    )
    trace_id: Annotated[str, Field(max_length=32)] = Field(
        default="", description="Only runs of this trace, 32 hex digits."
    )
    created_from: Moment | None = Field(default=None, description="Only runs created at or after this time.")
    created_before: Moment | None = Field(default=None, description="Only runs created before this time.")
    waiting_before: Moment | None = Field(
        default=None, description="Only runs with a wait that was opened before this time."
    )


# A business key: of limited length, as search requires, without invisible characters, and without the prefix of
# schedules.
BusinessKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_as_key)]


class FirstSignal(Strict):
    """A signal that is sent to the run that the start returns."""

    name: Annotated[str, Field(min_length=1, max_length=64)] = Field(description="Name of the signal.")
    payload: Any = Field(default=None, description="Any JSON value.")
    id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Your own id; a repeated request with it is the same signal."
    )


Attributes = Annotated[dict[str, Any], Field(max_length=MAX_ATTRIBUTES)]


class StartBody(Strict):
    """Parameters of a start.
    `agent` is a name (which starts the newest version, or the one that a ramp chooses) or `name@version`. `input` and
    `attributes` must fit the schemas of that version."""

    agent: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Agent to start, with or without @version."
    )
    input: Any = Field(description="Input that fits the agent's schema.")
    tags: Tags = Field(default=[], description="Tags of the run: an array of texts or an object.")
    budget: Budget | None = Field(default=None, description="Caps of the run; a resource that is not given has no cap.")
    business_key: BusinessKey | None = Field(
        default=None,
        description="Your own key, such as an invoice number. At most one run per agent and key is active.",
    )
    on_conflict: Literal["refuse", "join", "replace", "queue", "debounce"] | None = Field(
        default=None,
        description="Action if a run with the key is active; default: refuse, or join if a signal is given.",
    )
    debounce_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = Field(
        default=None, description="With `debounce`: seconds to wait for a newer start with the same key."
    )
    start_at: Moment | None = Field(default=None, description="Do not start before this time.")
    start_before: Moment | None = Field(
        default=None, description="If the run has not started by this time, it ends as cancelled."
    )
    signal: FirstSignal | None = Field(
        default=None, description="Sent to the run that is returned, whether new or joined."
    )
    attributes: Attributes = Field(default={}, description="Attributes to search by, as the agent declares them.")
    priority: Annotated[
        int, Field(ge=-100, le=100, description="Runs with a higher priority are claimed first; default 0.")
    ] = 0


MAX_AT_ONCE = 200


class BulkBody(Strict):
    """Several starts. Each succeeds or fails on its own."""

    runs: Annotated[
        list[Any], Field(min_length=1, max_length=MAX_AT_ONCE, description="Starts, each as in a single start.")
    ]


class SteerBody(Justified):
    """The person's justification of an action. It is recorded."""


class SteerRunBody(SteerBody):
    """Parameters of an operation on one run."""

    newest: bool = Field(
        default=False,
        description="If the run was continued as another, act on the newest one instead of refusing.",
    )


Effects = Literal["undo", "leave"]
_EFFECTS = "What happens to effects that can be undone; required if there are any."


class CancelBody(SteerRunBody):
    """Parameters of a cancel."""

    effects: Effects | None = Field(default=None, description=_EFFECTS)


class CancelUndoableBody(SteerRunBody):
    """Parameters of a cancel of a run with effects that can be undone."""

    effects: Effects = Field(description=_EFFECTS)


class CancelForm(SteerBody):
    """Parameters of a cancel from the console."""

    effects: Effects | None = None


class BudgetBody(SteerBody):
    """Caps to set. Null removes a cap; caps that aren't named stay the same."""

    budget: Budget = Field(description="Caps to set.")
    if_caps: Budget | None = Field(
        default=None, description="Caps as last read. If one of them has changed since, nothing is set (409)."
    )


class ModelsBody(SteerBody):
    """Models to use from now on, in this order. The models apply to all assistants unless one is named."""

    models: Annotated[list[Annotated[str, Field(min_length=1, max_length=300)]], Field(min_length=1, max_length=8)] = (
        Field(description="Models in order of preference.")
    )
    assistant: Annotated[str, Field(max_length=200)] = Field(
        default="", description="Assistant that uses them; empty for all."
    )


Verdict = Literal["happened", "did_not", "fail"]


class ReconcileBody(SteerBody):
    """A verdict on a call whose outcome is unknown."""

    verdict: Verdict = Field(description="happened, did_not, or fail (the run fails).")
    receipt: Any = Field(default=None, description="Result of the call, if it happened.")
    sender_is_gone: bool = Field(
        default=False,
        description="Confirms that the worker has ended. Needed if the worker was declared dead without proof.",
    )
    wait_id: Annotated[UUID, Field(strict=False)] | None = Field(
        default=None, description="Id of the wait; required if the run has several unknown outcomes."
    )
    agrees_with: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="If two people must settle it: number of the proposal that you confirm."
    )


class DoubtBody(SteerBody):
    """The unknown outcome whose proposal is withdrawn, or about which the upstream system is queried."""

    wait_id: Annotated[UUID, Field(strict=False)] = Field(description="Id of the wait for the unknown outcome.")


class SignalBody(Strict):
    """A signal for the run. If you send an `id`, a repeated request with it is the same signal."""

    payload: Any = Field(default=None, description="Any JSON value.")
    id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Your own id; a repeated request with it is the same signal."
    )


class MessageBody(Strict):
    """A message to the run.

    `body` must fit the schema of the agent's message. If you send an `id`, a repeated request with it is the same
    message.
    """

    body: Any = Field(description="Body that fits the schema of the agent's message.")
    id: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="Your own id; a repeated request with it is the same message."
    )


class AnswerBody(Strict):
    """An answer, which must fit the question's schema. The justification is optional."""

    justification: Justification = ""

    answer: Any = Field(description="Answer that fits the question's schema.")
