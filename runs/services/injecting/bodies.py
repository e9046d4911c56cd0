"""What somebody says who lets a run go on and hands it something: the API's bodies, and the console's forms."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ledger.web.bodies import Strict
from runs.services.bodies import SteerRunBody

MOST_BYTES = 64 * 1024
MOST_LETTERS = 8000
_PATCH = "A JSON merge patch (RFC 7396) of the state, which has to fit the agent's own schema."
_MESSAGE = "Words for the models that the run's node asks; they are marked as a person's."
Patch = Annotated[dict[str, Any], Field(description=_PATCH)]
Message = Annotated[str, Field(min_length=1, max_length=MOST_LETTERS, description=_MESSAGE)]


class Seen(Strict):
    """The state of the run that somebody looked at: its last event, and that one's hash. Another one by now: refused
    (409)."""

    seq: Annotated[int, Field(ge=1)]
    head: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class LookBody(Strict):
    """What would it make of the run? Nothing is changed."""

    patch: Patch | None = None
    message: Message | None = None


class ContextBody(LookBody):
    """What is handed to the run, by an operator who saw it so: `patch`, `message` or both."""

    seen: Seen


class GoOnBody(SteerRunBody):
    """Let a run go on; an operator may hand it something."""

    context: ContextBody | None = Field(default=None, description="What is handed to the run; for operators.")
