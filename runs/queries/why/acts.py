"""Available actions on a run, and refusals, by the services' own rules and texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from runs.services.messages.sending import agent_of
from runs.services.priorities import PriorityBody, RunHasEnded
from runs.services.undo import offered


@dataclass(frozen=True, slots=True)
class Found:
    """A cause found by another package."""

    cause: Cause
    sentence: str
    who: Who
    since: datetime | None = None
    until: datetime | None = None
    evidence: tuple[Evidence, ...] = ()


SENDERS = (INTEGRATOR, OPERATOR)
# Actions on a run, in the order in which they are offered.
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

# Waits for which actions are offered.
MAX_OFFERED = 20
_OUTSIDE = (Wait.Kind.INPUT, Wait.Kind.SIGNAL, Wait.Kind.MESSAGE)

# Actions that may carry context from an operator.
GOING_ON = ("resume", "retry")


@dataclass(frozen=True, slots=True)
class Offer:
    """An action: where and what to send, and the role to act under. If refused, `code` and `why_not` are the error's.
    `required` are fields that must be sent though their schema has a default."""

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
        """Return the body's JSON schema with the required fields, which must not be empty."""
        schema = dict(schema_of(self.body))
        said = {name: _said(schema["properties"][name]) for name in self.required}
        return schema | {
            "required": sorted({*schema.get("required", ()), *self.required}),
            "properties": schema["properties"] | said,
        }

    def refused(self, error: DurableAgentsError) -> Offer:
        return replace(self, code=error.code, why_not=error.detail)


def _said(field: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in field.items() if name != "default"}
    return {"minLength": 1} | said if said.get("type") == "string" else said


@cache
def schema_of(body: type[BaseModel]) -> dict[str, Any]:
    return body.model_json_schema()


def offers_of(seen: Seen, reader: Reader) -> list[Offer]:
    """Return all actions on a run, allowed or not, and those about its waits."""
    stands = authority.standing(seen.run)
    return [
        *(_with_effects(_steering(act, seen, stands, reader), seen) for act in STEERING if _is_there(act, seen)),
        *_for_waits(seen, reader),
    ]


def steering(seen: Seen, reader: Reader, stands: Standing) -> dict[str, Offer]:
    return {act: _steering(act, seen, stands, reader) for act in ("pause", "resume", "cancel", "retry", "requeue")}


def _is_there(act: str, seen: Seen) -> bool:
    """Return whether the action exists: an agent without models has none to move; unknown agents may."""
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
    """Require a choice about effects from actors who cancel a run with any to undo."""
    is_asked = offer.act == "cancel" and offer.is_allowed and (undo := offered(seen.run)) is not None and undo.is_needed
    return replace(offer, body=CancelUndoableBody) if is_asked else offer


def _refusal(act: str, seen: Seen) -> DurableAgentsError | None:
    """Return the refusal by the run's state, and for resuming also by related runs."""
    run = seen.run
    if seen.head is None:
        return RecordDamaged(run.pk, "its head")
    if run.state not in State.values:
        return refusal(act, run, "")
    hint = why_not(act, seen.stand)
    if hint is not None:
        return RunHasEnded(hint) if act == "priority" else refusal(act, run, hint)
    if act in ALONE and (other := related_runs.in_the_way(run)) is not None:
        return refusal(act, run, related_runs.why_not(other))
    if act == "retry" and run.state == State.FAILED and retrying.key_lives([run]):
        return refusal(act, run, retrying.KEY_LIVES.format(run.business_key))
    return None


# --- about its waits --------------------------------------------------------------------------------------------------


def due_first(waits: Iterable[Wait], most: int) -> list[Wait]:
    """Return the first waits by deadline, those without one last."""
    return sorted(waits, key=lambda wait: (wait.deadline is None, wait.deadline or wait.opened_at, wait.pk))[:most]


def how_many_more(seen: Seen) -> str:
    """Return a note that there are more waits than actions; "" otherwise."""
    more = len(_outside(seen)) - MAX_OFFERED
    if more <= 0:
        return ""
    return (
        f"{more} more answers, signals or messages that it waits for are not among its acts: "
        f"GET /api/v1/runs/{seen.run.pk} has them all (waiting_for)."
    )


def _outside(seen: Seen) -> list[Wait]:
    return [wait for wait in seen.waits if wait.kind in _OUTSIDE]


def _for_waits(seen: Seen, reader: Reader) -> Iterator[Offer]:
    for wait in due_first(_outside(seen), MAX_OFFERED):
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
