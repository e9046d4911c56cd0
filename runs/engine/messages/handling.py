"""One message, handled: a function of the state and the request. What it gives is put on record, and never asked for
again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from ledger import events as e
from runs.engine.canonical import plain, printable
from runs.engine.errors import Refused, brief, traceback_of
from runs.engine.journal import WaitSpec
from runs.engine.messages.changes import difference
from runs.engine.messages.declared import Message
from runs.engine.tape import Tape


class Takes(Protocol):
    """Of an agent: which messages its runs take, and what they change."""

    @property
    def graph_id(self) -> str: ...
    @property
    def state(self) -> type[BaseModel]: ...
    @property
    def schema_version(self) -> int: ...
    @property
    def messages(self) -> dict[str, Message]: ...


def handle(agent: Takes, state: Callable[[], dict[str, Any]], came: e.MessageReceived) -> tuple[str, dict[str, Any]]:
    """How a message comes out, and what the record says of it. The function gets the state as an object of its own, so
    that one that refuses or breaks has changed nothing; `state` makes it, and where the node waits with what is no
    plain data in it, that is what fails."""
    message = agent.messages.get(came.name)
    if message is None:
        return "failed", {"code": "unknown_message", "message": f"{agent.graph_id} takes no message {came.name!r}"}
    try:
        own = agent.state.model_validate(state())
        before = plain(own)
        given = message.function(own, message.takes.model_validate(came.payload))
        told: dict[str, Any] = {}
        if message.answers is not None:
            fits = isinstance(given, message.answers)
            told["answer"] = plain(given if fits else message.answers.model_validate(given))
        after = plain(own)
        agent.state.model_validate(after)
        changed = difference(before, after)
        if changed and agent.schema_version > 1:
            changed["number"] = agent.schema_version
        return "answered", told | changed
    except Refused as no:
        return "refused", {"code": printable(str(no.code)), "message": printable(str(no.message))}
    except (Exception, SystemExit) as error:
        return "failed", {"code": "handler_error", "message": brief(error), "traceback": traceback_of(error)}


def handled(
    agent: Takes,
    state: Callable[[], dict[str, Any]],
    came: e.MessageReceived,
    *,
    visit: str,
    place: int,
    waiting: Sequence[WaitSpec] = (),
) -> tuple[list[e.Event], list[WaitSpec]]:
    """The events of one message's handling, and the waits that it ends: a message that was answered is what a call
    waited for that named it, or named none."""
    outcome, payload = handle(agent, state, came)
    ended = [w for w in waiting if came.name in (w.detail["names"] or [came.name])] if outcome == "answered" else []
    event = e.MessageHandled(
        name=came.name,
        n=came.n,
        outcome=outcome,
        visit=visit,
        place=place,
        calls=[w.slot for w in ended],
        payload=payload,
    )
    resolved = [
        e.WaitResolved(slot=w.slot, attempt=w.attempt, wait=w.kind, n=w.n, resolution="received", by="system:engine")
        for w in ended
    ]
    return [event, *resolved], ended


def outcome_of(events: list[e.Event]) -> str:
    """What became of the message that these events tell of."""
    return next(event.outcome for event in events if isinstance(event, e.MessageHandled))


def note(tape: Tape, events: list[e.Event]) -> None:
    """What is on record by now, on the tape that the drive goes by."""
    for event in events:
        tape.add(event)
