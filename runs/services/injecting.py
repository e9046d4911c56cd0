"""Resuming or retrying a run with injected context: a state patch, a message for models, or both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from pydantic import Field

from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified, locked_head
from ledger.errors import Busy, DurableAgentsError, InvalidInput, RecordDamaged, TooLarge
from ledger.models import Event, Head
from ledger.web.bodies import Strict
from runs.engine.agents import Agent
from runs.engine.errors import JournalBroken, describe_error
from runs.engine.injecting import Misfit, Patched, PatchPosition, Unfit, patched, stood
from runs.journal.digests import hasher
from runs.models import Run, State, Wait
from runs.services import authority, lifecycle
from runs.services.allowed import stand_of, why_not
from runs.services.bodies import SteerRunBody
from runs.services.command import Act, refusal
from runs.services.lifecycle import find
from runs.services.messages.sending import agent_of
from runs.services.trial import TIMEOUT_SECONDS, TrialFailed, position_on_record, run_trial

MAX_BYTES = 64 * 1024
MAX_LETTERS = 8000
_PATCH = "A JSON merge patch (RFC 7396) of the state. The result must fit the agent's state schema."
_MESSAGE = "Text for the models that the run's node uses; marked as written by a person."
Patch = dict[str, Any]
Message = Annotated[str, Field(min_length=1, max_length=MAX_LETTERS)]


class StateSeen(Strict):
    """The state of the run that the caller has seen: number and hash of its last event.
    The request is refused with 409 if that has changed."""

    seq: Annotated[int, Field(ge=1)] = Field(description="Number of the last journal event.")
    head: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] = Field(description="Hash of that event.")


class LookBody(Strict):
    """A patch or message to preview. Nothing is changed."""

    patch: Patch | None = Field(default=None, description=_PATCH)
    message: Message | None = Field(default=None, description=_MESSAGE)


class ContextBody(LookBody):
    """A `patch`, a `message` or both, for a run whose state the operator has seen."""

    seen: StateSeen = Field(description="The run's state that you have seen.")


class GoOnBody(SteerRunBody):
    """Parameters of a resume or retry. An operator may add context."""

    context: ContextBody | None = Field(default=None, description="Patch or message for the run; operators only.")
    resume_token: str | None = Field(
        default=None,
        max_length=100,
        description="Token of the run as you saw it: if a worker has claimed it since, nothing is done.",
    )


ACTION = "inject"


class CanNotTake(DurableAgentsError):
    """The run can't accept context at its current position. `reason` is a code for the cause."""

    status, code, title = 409, "context-refused", "The run can't accept context"

    def __init__(self, run_id: UUID, reason: str, why: str) -> None:
        super().__init__(f"Run {run_id} can't accept context: {why}.", reason=reason)


@dataclass(frozen=True, slots=True)
class Look:
    """A run's position, its last event (`seq` and its hash `head`), and the patched state, if any."""

    run: Run
    seq: int
    head: str
    agent: Agent
    stands: PatchPosition
    made: Patched | None = None
    message: str = ""


def look(run_id: UUID, *, patch: dict[str, Any] | None = None, message: str | None = None) -> Look:
    """Return a preview of the run with this patch, message or both.
    Raises NotFound, InvalidInput, TooLarge, CanNotTake, IllegalTransition, RecordDamaged, Busy, UnknownAgent,
    UnknownVersion."""
    with transaction.atomic():
        run = find(run_id)
        head = Head.objects.filter(pk=run_id).first() or locked_head(run_id)  # raises an error if it is missing
        must_stand_still(run, head)
        agent = agent_of(run)
        try:
            created, position, earlier, seq, is_asked = position_on_record(run, head.seq)
        except JournalBroken as broken:
            raise RecordDamaged(run.pk, f"an intact journal ({broken})") from broken
    if is_asked:
        raise CanNotTake(run_id, "undoing", "it will undo its effects and then end")
    if seq != head.seq:
        raise Busy("The run progressed during the preview")

    def work() -> PatchPosition:
        return asyncio.run(stood(agent, str(run.pk), created, position, earlier, depth=run.depth, hasher=hasher()))

    try:
        found = run_trial(work, f"looking at run {run.pk}")
    except TrialFailed as no:
        raise _not_looked(run_id, agent, no) from no
    made = None if patch is None else _patched_state(agent, found, patch)
    if message is not None:
        _must_be_heard(run_id, agent, found)
    return Look(run, head.seq, bytes(head.chain).hex(), agent, found, made, message or "")


def must_stand_still(run: Run, head: Head) -> None:
    """Check that the run's state allows injecting context. Raises IllegalTransition."""
    is_stopped = run.waits.filter(kind=Wait.Kind.OPERATOR, resolved_at__isnull=True).exists()
    kinds = [Wait.Kind.OPERATOR] if is_stopped else []
    condition = stand_of(run, pause_asked=head.is_pause_requested, cancel_asked=head.is_cancel_requested, kinds=kinds)
    if run.state not in State.values:
        raise refusal(_IN_WORDS, run, "")
    if (hint := why_not(ACTION, condition)) is not None:
        raise refusal(_IN_WORDS, run, hint)


_IN_WORDS = "take context"


def _not_looked(run_id: UUID, agent: Agent, no: TrialFailed) -> DurableAgentsError:
    if no.code == "busy":
        return Busy(f"Another run was tried for more than {TIMEOUT_SECONDS:g} s")
    if isinstance(no.cause, Unfit):
        return CanNotTake(run_id, no.cause.code, str(no.cause))
    if no.cause is None:
        return CanNotTake(
            run_id, "too_slow", f"{agent.graph_id} took more than {TIMEOUT_SECONDS:g} s to replay its visit"
        )
    return CanNotTake(run_id, "broke", f"{agent.graph_id} failed when replaying the visit: {describe_error(no.cause)}")


def _patched_state(agent: Agent, found: PatchPosition, patch: dict[str, Any]) -> Patched:
    size = len(json.dumps(patch, ensure_ascii=False).encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise TooLarge("patch", MAX_BYTES)
    try:
        return patched(agent.state, agent.schema_version, found.state, patch)
    except Misfit as error:
        errors = [{"field": f"context.{field}", "problem": what, "fix": fix} for field, what, fix in error.problems]
        first = errors[0]
        raise InvalidInput(
            f"The patch does not fit the state of {agent.graph_id}: {first['field']} {first['problem']}.", errors=errors
        ) from error


def _must_be_heard(run_id: UUID, agent: Agent, found: PatchPosition) -> None:
    """Check that a model of the run's node would receive a message. Raises CanNotTake."""
    if not agent.assistants:
        raise CanNotTake(run_id, "no_models", f"{agent.graph_id} uses no models, so there is no receiver for a message")
    if found.is_between:
        why = "it has not entered its next node yet, and a message is for the models of one: resume it first"
        raise CanNotTake(run_id, "no_node", why)


_MAX_TOLD = 20
_GO_ON: Mapping[str, Callable[..., Run]] = {"resume": lifecycle.resume, "retry": lifecycle.retry}


class Moved(DurableAgentsError):
    """The run's state has changed since the caller saw it."""

    status, code, title = 409, "state-moved", "The run has progressed"

    def __init__(self, run_id: UUID, seen: StateSeen, seq: int) -> None:
        at_seen = Event.objects.filter(run_id=run_id, seq=seen.seq).values_list("hash", flat=True).first()
        if at_seen is None or bytes(at_seen).hex() != seen.head:
            what = f"its journal has no event {seen.seq} with that hash"
            moved: list[dict[str, Any]] = []
        else:
            rows = Event.objects.filter(run_id=run_id, seq__gt=seen.seq).order_by("seq").values("seq", "kind", "at")
            moved = [row | {"at": row["at"].isoformat()} for row in rows[:_MAX_TOLD]]
            text = ", ".join(f"{row['kind']} (event {row['seq']})" for row in moved)
            what = f"newer events are {text}" if text else "its status has changed"
        super().__init__(
            f"You have seen run {run_id} up to event {seen.seq}, but its journal is at event {seq}: {what}. Nothing "
            "was done. Read the run again.",
            seq=seq,
            moved=moved,
        )


def go_on(
    action: str, run_id: UUID, context: ContextBody, *, by: Actor, justification: str, seen_before: Look | None = None
) -> Run:
    """Inject the context into a run and resume or retry it (`action`); both happen or neither.
    The run must still be in the state that the caller saw (`context.seen`). A caller in a transaction must call the
    slow `look_first` before the transaction and pass the result as `seen_before`. Raises Moved, and the errors of
    `look_first` and of the action."""
    may_hand(by)
    why = justified(action, justification)
    seen = seen_before or look_first(action, run_id, context, by=by, justification=why)
    with transaction.atomic():
        _hand(run_id, seen, context.seen, by=by, justification=why)
        return _GO_ON[action](run_id, by=by, justification=why)


def look_first(action: str, run_id: UUID, context: ContextBody, *, by: Actor, justification: str) -> Look:
    """Check the context before it is injected.
    This may take twice the time limit of `run_trial`. Raises Forbidden, JustificationRequired, InvalidInput, and the
    errors of `look`."""
    may_hand(by)
    justified(action, justification)
    if context.patch is None and context.message is None:
        problem = {"field": "context", "problem": "is empty", "fix": "give `patch`, `message` or both"}
        raise InvalidInput("The context is empty: give a patch, a message or both.", errors=[problem])
    return look(run_id, patch=context.patch, message=context.message)


def may_hand(by: Actor) -> None:
    """Check that the actor may inject context. Raises Forbidden."""
    if authority.SteeringAuthority().role(ACTION, [by.role], by.person) is None:
        raise authority.SteeringAuthority().refusal(ACTION, [by.role])


def _hand(run_id: UUID, found: Look, seen: StateSeen, *, by: Actor, justification: str) -> None:
    """Write the event and the override record under the run's lock."""
    act = Act(ACTION, run_id, by=by, justification=justification)
    now = act.head.seq, bytes(act.head.chain).hex()
    if now != (seen.seq, seen.head) or now != (found.seq, found.head):
        raise Moved(run_id, seen, act.head.seq)
    must_stand_still(act.run, act.head)
    position, summary = found.stands, dict(found.made.told) if found.made is not None else {}
    if found.message:
        summary["message"] = found.message
    event = e.ContextInjected(
        by=act.by.ref,
        role=act.by.role,
        visit=position.visit,
        place=position.place,
        seen=seen.seq,
        head=seen.head,
        payload=act.payload | summary,
    )
    fields = found.made.fields if found.made is not None else []
    act.done(event, after={"context": {"fields": fields, "has_message": bool(found.message)}})
