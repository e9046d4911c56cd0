"""Waits that a node requests itself: for signals, questions and messages.

Each has a deadline, and a result to return if the deadline passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine.agents import SIGNAL_NAME
from runs.engine.canonical import plain, printable
from runs.engine.errors import BadSignal, ContentRefused, DefinitionError, MisusedContext, TimedOut
from runs.engine.gate import check_recipient_exists, commit_question
from runs.engine.journal import Batch, WaitSpec, deadline_in
from runs.engine.messages import taken_at
from runs.engine.outcomes import Broken
from runs.engine.screening import received
from runs.engine.tape import payload_of
from runs.engine.tools import must_be_stable
from runs.engine.visit import Visit

RAISE: Any = object()  # there is no value for a timeout: raise TimedOut
M = TypeVar("M", bound=BaseModel)


async def await_signal(
    visit: Visit, slot: str, name: str, schema: type[BaseModel] | None, within: timedelta, or_else: Any
) -> Any:
    """Return the payload of the next signal with this name that no call has received.

    Which signal a call received is recorded, so a replay returns the same one.
    """
    if not SIGNAL_NAME.fullmatch(name):
        raise ValueError(f"signal name {name!r} is not of the form {SIGNAL_NAME.pattern}")
    if visit.agent.signals is not None and name not in visit.agent.signals:
        known = ", ".join(visit.agent.signals) or "none"
        raise MisusedContext(f"{visit.graph_id} declares no signal {name!r}, so nobody could send it: {known}")
    if schema is not None:
        must_fit(visit, f"signal {name!r}", schema)
    what = f"signal {name}"
    record = visit.recall(slot, what, "")
    past = record.now
    if isinstance(past.result, e.SignalTaken):
        came = await visit.signal(name, past.result.n)
        payload = await received(visit, slot, record, came.payload, source="signal", name=name)
        return _fit(schema, came, payload)
    if past.waits.get(("signal", 0)) == "timed_out":
        return in_time(what, or_else)
    detail = {"title": f"Signal {name}", "name": name}
    wait = WaitSpec(visit.run_id, slot, record.current, "signal", 0, deadline_in(visit.journal.now(), within), detail)
    if ("signal", 0) not in past.waits:
        await visit.commit(Batch([wait.opened({"call": what, "hash": ""})], wait=wait))
    visit.park(wait)


async def ask(
    visit: Visit, slot: str, of: str, *, title: str, schema: type[M], prefilled: Any, within: timedelta, or_else: Any
) -> Any:
    """Return a person's answer. Asks again if the schema rejects it or a hook withholds it."""
    must_fit(visit, f"the question {title!r}", schema)
    fields = {"title": printable(title), "of": of, "prefilled": printable(plain(prefilled))}
    requested_hash = visit.runtime.hasher({"ask": fields, "schema": schema.__name__})
    record = visit.recall(slot, "ask", requested_hash)
    past = record.now
    n, problem = 0, ""
    while n in past.answers:
        answer = payload_of(past.answers[n]).get("answer")
        try:
            answer = await received(visit, slot, record, answer, source="answer", name=of, place=str(n))
            fields["prefilled"] = answer
            return schema.model_validate(answer)
        except ContentRefused as no:
            n, problem = n + 1, f"the answer was withheld by {no.hook}: {no.reason}"
        except ValidationError as error:
            n, problem = n + 1, _problems(error)
    if past.waits.get(("input", n)) == "timed_out":
        return in_time(f"an answer to {title!r}", or_else)
    detail = {**fields, "schema": schema.model_json_schema()} | ({"problem": problem} if problem else {})
    wait = WaitSpec(visit.run_id, slot, record.current, "input", n, deadline_in(visit.journal.now(), within), detail)
    if ("input", n) not in past.waits:
        await check_recipient_exists(visit, slot, of, visit.runtime.people, "queues and roles")
        await commit_question(visit, Batch([wait.opened({"call": "ask", "hash": requested_hash, **detail})], wait=wait))
    visit.park(wait)


def must_fit(visit: Visit, whose: str, schema: type[BaseModel]) -> None:
    """Stop for an operator if a call's schema is invalid. Waiting won't fix it, but new code may."""
    try:
        must_be_stable(whose, schema)
    except DefinitionError as error:
        visit.stop(Broken("definition", {"problem": error.detail}))


def in_time(what: str, or_else: Any) -> Any:
    """Return the value for a timeout; raises TimedOut if there is none."""
    if or_else is RAISE:
        raise TimedOut(what)
    return or_else


def _fit(schema: type[BaseModel] | None, came: e.SignalReceived | e.SignalCarried, payload: Any) -> Any:
    if schema is None:
        return payload
    try:
        return schema.model_validate(payload)
    except ValidationError as error:
        raise BadSignal(came.name, _problems(error), payload) from error


def _problems(error: ValidationError) -> str:
    problems = (f"{'.'.join(map(str, p['loc'])) or 'value'}: {p['msg']}" for p in error.errors(include_url=False))
    return str(printable("; ".join(problems)[:2000]))


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that was answered while a call waited for it. `name` and the number `n` identify it in the run.
    `answer` is plain data. The changes made by the message are already in the state."""

    name: str
    n: int
    answer: Any


async def await_message(visit: Visit, slot: str, names: Sequence[str], within: timedelta, or_else: Any) -> Any:
    """Return the next message that is answered during this wait."""
    for name in names:
        if name not in visit.agent.messages:
            known = ", ".join(visit.agent.messages) or "none"
            raise MisusedContext(f"{visit.graph_id} takes no message {name!r}: it takes {known}")
    what = " ".join(["message", *names])
    record = visit.recall(slot, what, "")
    past = record.now
    match past.waits.get(("message", 0)):
        case "received":
            event = taken_at(visit.tape, slot)
            return Taken(event.name, event.n, payload_of(event).get("answer"))
        case "timed_out":
            return in_time(what, or_else)
    detail = {"title": "Message" + (f" {' or '.join(names)}" if names else ""), "names": list(names)}
    wait = WaitSpec(visit.run_id, slot, record.current, "message", 0, deadline_in(visit.journal.now(), within), detail)
    if ("message", 0) not in past.waits:
        await visit.commit(Batch([wait.opened({"call": what, "hash": ""})], wait=wait))
    if visit.changes is not None:
        visit.changes.listening.append(wait)
    visit.park(wait)
