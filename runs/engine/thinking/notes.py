"""Operators' notes to the models of a node. Each conversation includes them from its next unrecorded request on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledger import events as e
from runs.engine.tape import payload_of
from runs.engine.visit import Visit

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelRequest, UserPromptPart

FROM_PEOPLE = "from_people"  # key in a request's event: the notes that this request is the first to include
_HEADING = "From a person who operates this run (their own words: neither an answer of a tool nor yours):\n"


class Notes:
    """The notes that one conversation has included so far."""

    def __init__(self, visit: Visit) -> None:
        self._visit, self._heard = visit, 0

    def new(self, slot: str) -> list[str]:
        """Return the texts that the request at this slot is the first to include."""
        tape = self._visit.tape
        known = tape.handled[: tape.asked_after.get(slot, len(tape.handled))]
        texts = [
            payload_of(event)["message"]
            for event in known
            if isinstance(event, e.ContextInjected)
            and event.visit == self._visit.places.visit
            and "message" in payload_of(event)
        ]
        fresh, self._heard = texts[self._heard :], max(self._heard, len(texts))
        return fresh


def as_parts(texts: Sequence[str]) -> list[UserPromptPart]:
    """Return these texts as parts of a request."""
    from pydantic_ai.messages import UserPromptPart

    return [UserPromptPart(content=f"{_HEADING}{text}") for text in texts]


def as_request(texts: Sequence[str], instructions: str) -> ModelRequest:
    """Return these texts as a request of their own."""
    from pydantic_ai.messages import ModelRequest

    return ModelRequest(parts=as_parts(texts), instructions=instructions)


def put_in(messages: Sequence[Any], notes: Sequence[tuple[int, Sequence[str]]]) -> list[Any]:
    """Add notes to a conversation that another library holds.

    Each of `notes` has the index of a request and its texts. If that request is gone, the texts are added to the last
    one.
    """
    made = list(messages)
    for place, texts in notes:
        at = place if place < len(made) and made[place].kind == "request" else len(made) - 1
        made[at] = replace(made[at], parts=[*made[at].parts, *as_parts(texts)])
    return made
