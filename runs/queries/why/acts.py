"""What whoever asks may do to a run that stands so, and why not what they may not: the same rules as the services', and
the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import BaseModel

from ledger.errors import DurableAgentsError, Forbidden, NotFound, RecordDamaged
from ledger.web.roles import INTEGRATOR, OPERATOR, role_in
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.models import Run, State, Wait
from runs.queries.why.seen import Cause, Evidence, Reader, Seen, Who
from runs.services import authority, questions, related_runs, retrying
from runs.services.allowed import ALONE, why_not
from runs.services.authority import Standing
from runs.services.bodies import (
    AnswerBody,
    BudgetBody,
    CancelBody,
    CancelUndoableBody,
    MessageBody,
    ModelsBody,
    ReconcileBody,
    SignalBody,
    SteerRunBody,
)
from runs.services.command import refusal
from runs.services.injecting import GoOnBody
from runs.services.limits.acts import NotInThisState, PriorityBody
from runs.services.messages.sending import agent_of
from runs.services.undo import offered


@dataclass(frozen=True, slots=True)
class Found:
    """What keeps a run, as somebody else knows it."""

    cause: Cause
    sentence: str
    who: Who
    since: datetime | None = None
    until: datetime | None = None
    evidence: tuple[Evidence, ...] = ()


# What comes before all that a run's own rows tell, of one that has not ended. The first that knows something counts.
judges: list[Callable[[Seen], Found | None]] = []
# What may be done besides, about what a run waits for.
offers: list[Callable[[Seen, Reader], list[Offer]]] = []
# What else is the matter, in a sentence; empty: nothing.
remarks: list[Callable[[Seen], str]] = []


SENDERS = (INTEGRATOR, OPERATOR)
# What is done to a run, in the order in which it is offered.
STEERING: dict[str, type[BaseModel]] = {
    "pause": SteerRunBody,
    "resume": SteerRunBody,
    "cancel": CancelBody,
    "retry": SteerRunBody,
    "reconcile": ReconcileBody,
    "budget": BudgetBody,
    "models": ModelsBody,
    "priority": PriorityBody,
    "requeue": SteerRunBody,
}

# Of what a run waits for: what may be done about so many waits is said, however many there are.
MOST_OFFERED = 20
_OUTSIDE = (Wait.Kind.INPUT, Wait.Kind.SIGNAL, Wait.Kind.MESSAGE)

# What lets a run go on, with which an operator may hand it something.
GOING_ON = ("resume", "retry")


@dataclass(frozen=True, slots=True)
class Offer:
    """One act: where it is sent and what with. `role` is the one under which whoever asks may do it. Where they may
    not, or the run's state doesn't allow it, `code` and `why_not` are those that they would be told. `required` names
    what the body has to say though its schema has a default."""

    act: str
    path: str
    body: type[BaseModel]
    role: str = ""
    code: str = ""
    why_not: str = ""
    subject: str = ""
    required: tuple[str, ...] = ()
    method: str = "POST"

    @property
    def is_allowed(self) -> bool:
        return not self.code

    @property
    def schema(self) -> dict[str, Any]:
        """The body's JSON schema. What has to be said is no empty text."""
        schema = dict(schema_of(self.body))
        said = {name: _said(schema["properties"][name]) for name in self.required}
        return schema | {
            "required": sorted({*schema.get("required", ()), *self.required}),
            "properties": schema["properties"] | said,
        }

    def refused(self, error: DurableAgentsError) -> Offer:
        return replace(self, code=error.code, why_not=error.detail)


def _said(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field that has to be said, though it has a default."""
    said = {name: value for name, value in field.items() if name != "default"}
    return {"minLength": 1} | said if said.get("type") == "string" else said


@cache
def schema_of(body: type[BaseModel]) -> dict[str, Any]:
    return body.model_json_schema()


def offers_of(seen: Seen, reader: Reader) -> list[Offer]:
    """All that is done to a run by a person, be it allowed now or not; and what is done about what it waits for."""
    stands = authority.standing(seen.run)
    return [
        *(_with_effects(_steering(act, seen, stands, reader), seen) for act in STEERING if _is_there(act, seen)),
        *_for_waits(seen, reader),
    ]


def steering(seen: Seen, reader: Reader, stands: Standing) -> dict[str, Offer]:
    return {act: _steering(act, seen, stands, reader) for act in ("pause", "resume", "cancel", "retry", "requeue")}


def _is_there(act: str, seen: Seen) -> bool:
    """An agent that asks no model has none to be moved from; of one that isn't here nobody knows."""
    if act != authority.MODELS:
        return True
    try:
        return bool(agent_of(seen.run).assistants)
    except (UnknownAgent, UnknownVersion):
        return True


def _steering(act: str, seen: Seen, stands: Standing, reader: Reader) -> Offer:
    offer = Offer(act, f"/api/v1/runs/{seen.run.pk}/{act}", STEERING[act], required=("justification",))
    role = stands.role(act, reader.held, reader.by.person)
    if role is None:
        return offer.refused(stands.refusal(act, reader.held))
    is_handing = act in GOING_ON and role == OPERATOR
    offer = replace(offer, role=role, body=GoOnBody if is_handing else offer.body)
    error = _refusal(act, seen)
    return offer if error is None else offer.refused(error)


def _with_effects(offer: Offer, seen: Seen) -> Offer:
    """Whoever cancels a run with effects that can be undone says what becomes of them."""
    is_asked = offer.act == "cancel" and offer.is_allowed and (undo := offered(seen.run)) is not None and undo.is_needed
    return replace(offer, body=CancelUndoableBody) if is_asked else offer


def _refusal(act: str, seen: Seen) -> DurableAgentsError | None:
    """What the run's state says to it, and for what sets it going whatever else does its work."""
    run = seen.run
    if seen.head is None:
        return RecordDamaged(run.pk, "its head")
    if run.state not in State.values:
        return refusal(act, run, "")
    hint = why_not(act, seen.stand)
    if hint is not None:
        return NotInThisState(hint) if act == "priority" else refusal(act, run, hint)
    if act in ALONE and (other := related_runs.in_the_way(run)) is not None:
        return refusal(act, run, related_runs.why_not(other))
    if act == "retry" and run.state == State.FAILED and retrying.key_lives([run]):
        return refusal(act, run, retrying.KEY_LIVES.format(run.business_key))
    return None


# --- about what it waits for ------------------------------------------------------------------------------------------


def due_first(waits: Iterable[Wait], most: int) -> list[Wait]:
    """The first so many of them by their deadlines; what has none comes last."""
    return sorted(waits, key=lambda wait: (wait.deadline is None, wait.deadline or wait.opened_at, wait.pk))[:most]


def how_many_more(seen: Seen) -> str:
    """That there is more to answer or to send than its acts say; empty where there isn't."""
    more = len(_outside(seen)) - MOST_OFFERED
    if more <= 0:
        return ""
    return (
        f"{more} more answers, signals or messages that it waits for are not among its acts: "
        f"GET /api/v1/runs/{seen.run.pk} has them all (waiting_for)."
    )


def _outside(seen: Seen) -> list[Wait]:
    return [wait for wait in seen.waits if wait.kind in _OUTSIDE]


def _for_waits(seen: Seen, reader: Reader) -> Iterator[Offer]:
    for wait in due_first(_outside(seen), MOST_OFFERED):
        at = f"/api/v1/runs/{seen.run.pk}"
        detail = wait.detail if isinstance(wait.detail, dict) else {}
        if wait.kind == Wait.Kind.INPUT:
            yield _answering(wait, Offer("answer", f"{at}/answers/{wait.pk}", AnswerBody, subject=str(wait.pk)), reader)
        elif wait.kind == Wait.Kind.SIGNAL and isinstance(name := detail.get("name"), str):
            yield _sending(Offer("signal", f"{at}/signals/{name}", SignalBody, subject=name), reader)
        elif wait.kind == Wait.Kind.MESSAGE:
            for name in _names(seen.run, detail):
                yield _sending(Offer("message", f"{at}/messages/{name}", MessageBody, subject=name), reader)


def _names(run: Run, detail: dict[str, Any]) -> list[str]:
    """The messages that a wait is for; where it is for any, all that the agent takes, if it is here."""
    named = detail.get("names")
    if isinstance(named, list) and named:
        return [name for name in named if isinstance(name, str)]
    try:
        return sorted(agent_of(run).messages)
    except (UnknownAgent, UnknownVersion):
        return []


def _sending(offer: Offer, reader: Reader) -> Offer:
    role = role_in(SENDERS, reader.held)
    return offer.refused(Forbidden("None of your roles allows this.")) if role is None else replace(offer, role=role)


def _answering(wait: Wait, offer: Offer, reader: Reader) -> Offer:
    try:
        known = questions.question(wait.run_id, wait.pk)
        return replace(offer, role=questions.role_to_answer(known, reader.held), required=("answer",))
    except (Forbidden, NotFound, RecordDamaged) as error:
        return offer.refused(error)
