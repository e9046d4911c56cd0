"""Sending a message to a run: a request that the run receives and answers while it waits or works."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Max, Q
from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.actors import Actor
from ledger.api.present import payload_of
from ledger.append import acted, append
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.errors import DurableAgentsError, IllegalTransition, InvalidInput, NotFound, RecordDamaged, TooLarge
from ledger.models import Event, Head
from ledger.web import misfit
from runs.engine.agents import Agent, registry
from runs.engine.canonical import canonical, plain, printable
from runs.engine.checkpoints.position import position_of
from runs.engine.errors import JournalBroken, Refused, describe_error
from runs.engine.journal import Snapshot
from runs.engine.messages import Message as Declared
from runs.engine.messages import changes_in, with_changes
from runs.journal import notify
from runs.journal.reader import CHANGES, POSITION_ROWS, Cut, check_version, checked, cut_of, newest_sound
from runs.models import ENDED, Message, Run
from runs.services.command import locked, snapshot, wake
from runs.services.continuation import check_not_continued, for_newest, is_of_chain, newest


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """A message with the payloads of its events. `code` and `why` are set if it was refused or failed."""

    row: Message
    body: Any = None
    answer: Any = None
    code: str = ""
    why: str = ""
    sent_at: datetime | None = None
    answered_at: datetime | None = None

    @property
    def hidden(self) -> MessageDetail:
        """Return the message without payloads, for viewers who may not read them."""
        return replace(self, body=None, answer=None, why="")

    @property
    def is_no(self) -> bool:
        return self.row.outcome in (Message.Outcome.REFUSED, Message.Outcome.FAILED)


def told_of(messages: Iterable[Message], *, is_head: bool = False) -> list[MessageDetail]:
    """Return messages with their payloads, in one query.
    With `is_head`, only the beginning of large payloads is returned."""
    rows = list(messages)
    near = Q()
    for row in rows:
        near |= Q(run_id=row.run_id, seq__in=[row.seq, row.answered_seq or 0])
    events = {(x.run_id, x.seq): x for x in Event.objects.filter(near)} if rows else {}

    def at(row: Message, seq: int | None) -> Event | None:
        return events.get((row.run_id, seq or 0))

    return [_message_detail(row, at(row, row.seq), at(row, row.answered_seq), is_head) for row in rows]


def _message_detail(row: Message, came: Event | None, answered: Event | None, is_head: bool) -> MessageDetail:
    payload, given = _payload(came, is_head), _payload(answered, is_head)
    known = given if isinstance(given, dict) else {}
    return MessageDetail(
        row,
        payload,
        known.get("answer"),
        str(known.get("code", "")),
        str(known.get("message", "")),
        came.at if came is not None else None,
        answered.at if answered is not None else None,
    )


def _payload(event: Event | None, is_head: bool) -> Any:
    """Return the payload; None for a damaged row, so that pages can still show the others."""
    try:
        return payload_of(event, is_head=is_head) if event is not None else None
    except (ValueError, RecursionError):
        return None


MAX_SECONDS = 30
MAX_WAITERS = 2  # of eight concurrent requests (durableagents/server/admission.py)
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.3)
_waiters = threading.BoundedSemaphore(MAX_WAITERS)


def wait_for(message: Message, seconds: float) -> Message:
    """Return the message once it is answered, or in its current state after `seconds`.
    This polls, and releases its connection in between. It returns at once if too many requests wait in this process."""
    if message.outcome or seconds <= 0 or not _waiters.acquire(blocking=False):
        return message
    try:
        until, turn = time.monotonic() + min(seconds, MAX_SECONDS), 0
        while not message.outcome and (left := until - time.monotonic()) > 0:
            if not connection.in_atomic_block:
                connection.close()
            time.sleep(min(_PAUSES[min(turn, len(_PAUSES) - 1)], left))
            turn += 1
            message = Message.objects.get(pk=message.pk)
    finally:
        _waiters.release()
    return message


def agent_of(run: Run) -> Agent:
    """Return the run's own version. Raises UnknownAgent, UnknownVersion if this process lacks it."""
    return registry.find(run.graph_id)


def state_of(run: Run, agent: Agent) -> BaseModel:
    """Return a new object with the recorded state of the newest visit, including messages' changes. Raises
    RecordDamaged."""
    try:
        return agent.state.model_validate(_plain(run, agent))
    except (JournalBroken, ValidationError) as error:
        raise RecordDamaged(run.pk, f"a readable state ({str(error)[:200]})") from error


def _plain(run: Run, agent: Agent) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(POSITION_ROWS, [run.pk])
        cuts = [stored for row in cursor.fetchall() if (stored := cut_of(row)) is not None]
        cut = newest_sound(str(run.pk), cuts)
        cursor.execute(CHANGES, [run.pk, cut.seq, cut.seq])
        rows = cursor.fetchall()
    events = {link.seq: event for link, event in (checked(run.pk, row) for row in rows)}
    since = [event for seq, event in sorted(events.items()) if seq > cut.seq]
    _check(run, cut, events, since)
    position = position_of(cut.snapshot or Snapshot("", 0, run.generation, "", None), since)
    if position.entry is not None:
        state = position.entry[1]
    else:
        state = position.at.state if position.at.node else _initial_state(agent, events.get(1))
    return with_changes(state, changes_in(position.tail))


def _check(run: Run, cut: Cut, events: dict[int, e.Event], since: list[e.Event]) -> None:
    """Check the checkpoint and the version against the journal. Raises JournalBroken."""
    created, entered = events.get(1), events.get(cut.seq)
    if not isinstance(created, e.RunCreated):
        raise JournalBroken("the journal does not begin with the run's creation")
    check_version((run.graph_id, run.generation), created, entered if cut.seq > 1 else None, since, cut)
    checkpoint = (
        entered.payload.get("checkpoint") if entered is not None and isinstance(entered.payload, dict) else None
    )
    if cut.snapshot is not None and checkpoint not in (None, cut.digest):
        raise JournalBroken(f"the checkpoint at event {cut.seq} is not the one that its event names")


def _initial_state(agent: Agent, created: e.Event | None) -> Any:
    return plain(agent.begin(agent.input.model_validate(created.payload if created else None)))


MAX_BYTES = 64 * 1024
MAX_UNANSWERED = 100


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, and whether this request created it."""

    message: Message
    is_new: bool


class NotTaken(DurableAgentsError):
    """The agent declares no message of this name."""

    status, code, title = 422, "not-taken", "Not accepted by the agent"

    def __init__(self, graph_id: str, what: str, name: str, known: list[str]) -> None:
        takes = ", ".join(known) if known else f"no {what}s"
        super().__init__(f"{graph_id} accepts no {what} {name[:64]!r}. It accepts: {takes}.", takes=known)


class OtherMessage(DurableAgentsError):
    """The id was used for another message."""

    status, code, title = 409, "message-mismatch", "Message id used for something else"

    def __init__(self, sender_id: str) -> None:
        super().__init__(f"You sent this run a different message with the id {sender_id!r}. Use a new id.")


class CheckRefused(DurableAgentsError):
    """The agent's check refused the message. Nothing was recorded."""

    status, code, title = 422, "message-refused", "Refused by the agent"

    def __init__(self, no: Refused) -> None:
        reason = str(printable(str(no.message)))[:2000]
        super().__init__(reason, reason=str(printable(str(no.code)))[:100])


class CheckFailed(DurableAgentsError):
    """The agent's check failed. Nothing was recorded."""

    status, code, title = 500, "check-failed", "The agent's check failed"

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(
            f"The agent's check of message {name} failed, so the message was not accepted: {describe_error(error)}."
        )


class TooMany(DurableAgentsError):
    """The run has too many unanswered messages."""

    status, code, title = 429, "too-many-messages", "Too many unanswered messages"

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"Limit reached: {waiting} messages of this run are unanswered. "
            "Send yours again when some have been answered. A paused or stopped run answers only once resumed."
        )


def send(run_id: UUID, name: str, request: Any, *, by: Actor, sender_id: str | None = None) -> Sent:
    """Send a message to a run or its newest continuation.
    With `sender_id`, sending again yields the same message. Raises NotFound, NotTaken, InvalidInput, CheckRefused,
    CheckFailed, IllegalTransition (the run has ended or is ending), OtherMessage, TooLarge, TooMany, RecordDamaged,
    UnknownAgent, UnknownVersion."""
    run = newest(run_id)
    known = _earlier_message(run, name, request, by, sender_id)
    if known is not None:
        return Sent(known, False)
    _must_live(run)
    declared = declared_of(run, name)
    payload = _checked(run, declared, request)
    return for_newest(run.pk, lambda newest: _store(newest, name, request, payload, by, sender_id))


def declared_of(run: Run, name: str) -> Declared:
    """Return the declaration of a message in the run's version.
    Raises NotTaken, UnknownAgent, UnknownVersion."""
    takes = agent_of(run).messages
    if name not in takes:
        raise NotTaken(run.graph_id, "message", name, sorted(takes))
    return takes[name]


def _checked(run: Run, declared: Declared, request: Any) -> Any:
    """Return the request in the form that is recorded, after the agent's own check.
    The check runs before any lock."""
    size = len(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise TooLarge("message", MAX_BYTES)
    try:
        fits: BaseModel = declared.takes.model_validate(request)
        payload = plain(fits)
    except ValidationError as error:
        problems = [
            {
                "field": ".".join(["body", *([where] if where else [])]),
                "problem": what,
                "fix": "see the message's schema",
            }
            for where, what in misfit.problems(error)
        ]
        first = problems[0]
        raise InvalidInput(
            f"The request does not fit message {declared.name}: {first['field']}: {first['problem']}.", errors=problems
        ) from error
    if declared.check is not None:
        state = state_of(run, agent_of(run))
        try:
            declared.check(state, fits)
        except Refused as no:
            raise CheckRefused(no) from no
        except Exception as error:
            raise CheckFailed(declared.name, error) from error
    return payload


def _store(run_id: UUID, name: str, request: Any, payload: Any, by: Actor, sender_id: str | None) -> Sent:
    head, run = locked(run_id, under=by)
    check_not_continued(run)
    known = _earlier_message(run, name, request, by, sender_id)
    if known is not None:
        return Sent(known, False)
    _must_live(run, head)
    waiting = run.messages.filter(outcome="").count()
    if waiting >= MAX_UNANSWERED:
        raise TooMany(waiting)
    before = snapshot(run, head)
    n = 1 + (run.messages.aggregate(last=Max("n"))["last"] or 0)
    seq = append(run.id, e.MessageReceived(name=name, n=n, by=by.ref, payload=payload), by=by)
    message = Message.objects.create(run=run, n=n, name=name, by=by.ref, sender_id=sender_id, seq=seq)
    wake(run, now=database_now())
    acted("message", by=by, head=head, subject=f"{name} {n}", before=before, after=snapshot(run, head))
    notify.ring(run.id, seq)
    return Sent(message, True)


def _must_live(run: Run, head: Head | None = None) -> None:
    if run.state in ENDED:
        at = f" at {run.ended_at.isoformat()}" if run.ended_at else ""
        raise IllegalTransition("take a message", str(run.state), f"It ended{at}.")
    if head is not None and head.is_cancel_requested:
        raise IllegalTransition("take a message", str(run.state), "It is being cancelled.")


def _earlier_message(run: Run, name: str, request: Any, by: Actor, sender_id: str | None) -> Message | None:
    """Return this sender's message with the same id to this run or its predecessors. Raises OtherMessage."""
    if sender_id is None:
        return None
    known = Message.objects.filter(is_of_chain(run), by=by.ref, sender_id=sender_id).order_by("-id").first()
    if known is not None and (known.name != name or not _is_same(run, known, request)):
        raise OtherMessage(sender_id)
    return known


def _is_same(run: Run, known: Message, request: Any) -> bool:
    """Return whether the request equals the recorded one.
    If the two are identical, the run's version isn't needed."""
    payload = unpack(Event.objects.values_list("sealed", flat=True).get(run_id=known.run_id, seq=known.seq))
    try:
        if canonical(request) == canonical(payload):
            return True
        declared = agent_of(run).messages.get(known.name)
        return declared is not None and canonical(plain(declared.takes.model_validate(request))) == canonical(payload)
    except ValueError:
        return False


def message(run_id: UUID, n: str) -> Message:
    """Return a run's `n`-th message. Raises NotFound."""
    is_number = n.isascii() and n.isdecimal() and len(n) < 10
    found = Message.objects.filter(run_id=run_id, n=int(n)).first() if is_number else None
    if found is None:
        raise NotFound("message", n)
    return found
