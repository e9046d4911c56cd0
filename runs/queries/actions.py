"""The available actions on a run and the reasons for refusals, using the services' own rules and texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, Field

from ledger.actors import Actor
from ledger.errors import DurableAgentsError, Forbidden, NotFound, RecordDamaged
from ledger.web.roles import INTEGRATOR, OPERATOR, role_in
from ledger.web.shapes import Shape
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.models import Run, State, Wait
from runs.queries.run_facts import RunFacts
from runs.queries.status import ACTIONS, has_action
from runs.services import authority, questions, related_runs, retrying
from runs.services.allowed import ALONE, why_not
from runs.services.authority import SteeringAuthority
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
from runs.services.undo import effects_to_decide


@dataclass(frozen=True, slots=True)
class Reader:
    """The actor who wants to act, and the roles they hold."""

    by: Actor
    held: frozenset[str]


SENDERS = (INTEGRATOR, OPERATOR)
_BODIES: dict[str, type[BaseModel]] = {
    "cancel": CancelBody,
    "reconcile": ReconcileBody,
    "budget": BudgetBody,
    "models": ModelsBody,
    "priority": PriorityBody,
}

# Kinds of waits for which actions are offered.
MAX_OFFERED = 20
_OUTSIDE = (Wait.Kind.INPUT, Wait.Kind.SIGNAL, Wait.Kind.MESSAGE)

# Actions that may carry context from an operator.
GOING_ON = ("resume", "retry")


class Offer(Shape):
    """An action on the run, and whether the caller may take it now."""

    act: str = Field(description="Name of the action.")
    subject: str = Field(
        description="Its object if there are several, such as a wait or a name; empty if there is only one."
    )
    allowed: bool = Field(description="Whether the caller may take it now.")
    role: str = Field(description="The caller's role that allows it.")
    method: str = Field(description="HTTP method.")
    path: str = Field(description="URL to send it to.")
    body: dict[str, Any] = Field(description="JSON schema of the request body.")
    code: str = Field(description="Code of the problem that it would return now; empty if none.")
    why_not: str = Field(description="Why it is not allowed now; empty if it is allowed.")

    def refused(self, error: DurableAgentsError) -> Offer:
        return self.model_copy(update={"allowed": False, "code": error.code, "why_not": error.detail})


def offer(act: str, path: str, body: type[BaseModel], *required: str, subject: str = "", role: str = "") -> Offer:
    """Return an allowed action.
    `required` fields must be sent and not be empty, even if their schema has a default."""
    schema, no = schema_of(body, *required), {"code": "", "why_not": ""}
    return Offer(act=act, subject=subject, allowed=True, role=role, method="POST", path=path, body=schema, **no)


@cache
def schema_of(body: type[BaseModel], *required: str) -> dict[str, Any]:
    schema = body.model_json_schema()
    needed = {name: _without_default(schema["properties"][name]) for name in required}
    return schema | {
        "required": sorted({*schema.get("required", ()), *required}),
        "properties": schema["properties"] | needed,
    }


def _without_default(field: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in field.items() if name != "default"}
    return {"minLength": 1} | kept if kept.get("type") == "string" else kept


def offers_of(facts: RunFacts, reader: Reader) -> list[Offer]:
    """Return all actions on a run, allowed or not, and those about its waits."""
    steering = authority.steering_authority(facts.run)
    return [
        *(_on_run(act, facts, steering, reader, is_full=True) for act in ACTIONS if has_action(act, facts.run)),
        *_for_waits(facts, reader),
    ]


def steering(facts: RunFacts, reader: Reader, steering_authority: SteeringAuthority) -> dict[str, Offer]:
    return {
        act: _on_run(act, facts, steering_authority, reader)
        for act in ("pause", "resume", "cancel", "retry", "requeue")
    }


def _on_run(
    act: str, facts: RunFacts, steering_authority: SteeringAuthority, reader: Reader, *, is_full: bool = False
) -> Offer:
    """Return an action on the run.
    For a cancel, `is_full` requires a choice about effects if there are any to undo."""
    path, body = f"/api/v1/runs/{facts.run.pk}/{act}", _BODIES.get(act, SteerRunBody)
    role = steering_authority.role(act, reader.held, reader.by.person)
    if role is None:
        return offer(act, path, body, "justification").refused(steering_authority.refusal(act, reader.held))
    body = GoOnBody if act in GOING_ON and role == OPERATOR else body
    error = _refusal(act, facts)
    if (
        is_full
        and act == "cancel"
        and error is None
        and (undo := effects_to_decide(facts.run)) is not None
        and undo.is_needed
    ):
        body = CancelUndoableBody
    found = offer(act, path, body, "justification", role=role)
    return found if error is None else found.refused(error)


def _refusal(act: str, facts: RunFacts) -> DurableAgentsError | None:
    """Return the error with which the run refuses the action; None if it allows the action.
    A resume or retry is also refused because of related runs, and a retry because of another run of its key."""
    run = facts.run
    if facts.head is None:
        return RecordDamaged(run.pk, "its head")
    if run.state not in State.values:
        return refusal(act, run, "")
    hint = why_not(act, facts.stand)
    if hint is not None:
        return RunHasEnded(hint) if act == "priority" else refusal(act, run, hint)
    if act in ALONE and (other := related_runs.find_competing_run(run)) is not None:
        return refusal(act, run, related_runs.why_not(other))
    if act == "retry" and run.state == State.FAILED and retrying.key_lives([run]):
        return refusal(act, run, retrying.KEY_LIVES.format(run.business_key))
    return None


# --- about its waits --------------------------------------------------------------------------------------------------


def due_first(waits: Iterable[Wait], most: int) -> list[Wait]:
    """Return the first waits, ordered by deadline, with those without a deadline last."""
    return sorted(waits, key=lambda wait: (wait.deadline is None, wait.deadline or wait.opened_at, wait.pk))[:most]


def how_many_more(facts: RunFacts) -> str:
    """Return a note if there are more waits than listed actions; "" otherwise."""
    more = len(_outside(facts)) - MAX_OFFERED
    if more <= 0:
        return ""
    return (
        f"{more} more awaited answers, signals or messages are not listed as actions: "
        f"GET /api/v1/runs/{facts.run.pk} lists them all (waiting_for)."
    )


def _outside(facts: RunFacts) -> list[Wait]:
    return [wait for wait in facts.waits if wait.kind in _OUTSIDE]


def _for_waits(facts: RunFacts, reader: Reader) -> Iterator[Offer]:
    for wait in due_first(_outside(facts), MAX_OFFERED):
        at = f"/api/v1/runs/{facts.run.pk}"
        detail = wait.detail if isinstance(wait.detail, dict) else {}
        if wait.kind == Wait.Kind.INPUT:
            yield _answering(wait, reader)
        elif wait.kind == Wait.Kind.SIGNAL and isinstance(name := detail.get("name"), str):
            yield _sending(offer("signal", f"{at}/signals/{name}", SignalBody, subject=name), reader)
        elif wait.kind == Wait.Kind.MESSAGE:
            for name in _names(facts.run, detail):
                yield _sending(offer("message", f"{at}/messages/{name}", MessageBody, subject=name), reader)


def _names(run: Run, detail: dict[str, Any]) -> list[str]:
    named = detail.get("names")
    if isinstance(named, list) and named:
        return [name for name in named if isinstance(name, str)]
    try:
        return sorted(agent_of(run).messages)
    except (UnknownAgent, UnknownVersion):
        return []


def _sending(found: Offer, reader: Reader) -> Offer:
    role = role_in(SENDERS, reader.held)
    if role is None:
        return found.refused(Forbidden("None of your roles allows this."))
    return found.model_copy(update={"role": role})


def _answering(wait: Wait, reader: Reader) -> Offer:
    path, subject = f"/api/v1/runs/{wait.run_id}/answers/{wait.pk}", str(wait.pk)
    try:
        role = questions.role_to_answer(questions.question(wait.run_id, wait.pk), reader.held)
    except (Forbidden, NotFound, RecordDamaged) as error:
        return offer("answer", path, AnswerBody, subject=subject).refused(error)
    return offer("answer", path, AnswerBody, "answer", subject=subject, role=role)
