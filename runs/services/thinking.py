"""Changing the models of a run, beginning with its next request.
A run keeps its first models unless a person changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.kinds import CHOICE
from ledger.models import Event, Head
from runs.engine.agents import Agent, registry
from runs.engine.assistants import SCRIPTED, Assistant, check_models
from runs.engine.errors import DefinitionError, UnknownAgent, UnknownVersion
from runs.engine.thinking.request import real_model
from runs.models import Run
from runs.services.authority import MODELS
from runs.services.budgets import prices
from runs.services.command import Act


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models that an assistant's requests go to, in order, and who chose them; `assistant` "" means all."""

    assistant: str
    models: Sequence[str]
    by: str


def asked_by(run_id: UUID) -> list[ModelChoice]:
    """Return the newest choice for each assistant of a run, in the order in which each assistant first got a choice."""
    found: dict[str, ModelChoice] = {}
    for event in _choices(run_id):
        if event.assistant:
            found[event.assistant] = ModelChoice(event.assistant, event.models, event.by)
        else:
            every = {name: ModelChoice(name, event.models, event.by) for name in found}
            found = {**every, "": ModelChoice("", event.models, event.by)}
    return list(found.values())


def _choices(run_id: UUID) -> list[e.ModelsChosen]:
    rows = Event.objects.filter(run_id=run_id, slot=CHOICE).order_by("seq")
    return [event for row in rows if isinstance(event := e.decode(row.clear), e.ModelsChosen)]


def move(run_id: UUID, models: Sequence[str], *, assistant: str = "", by: Actor, justification: str) -> Run:
    """Send a run's requests to the first of `models` that works, for one assistant or all.
    Raises IllegalTransition for a run that has ended, InvalidInput, Forbidden, JustificationRequired, NotFound."""
    unfit = _unfit(models)  # done before locking, because a provider's code takes seconds to load
    with transaction.atomic():
        return _move(run_id, models, unfit, assistant=assistant, by=by, justification=justification)


def _move(
    run_id: UUID, models: Sequence[str], unfit: InvalidInput | None, *, assistant: str, by: Actor, justification: str
) -> Run:
    act = Act(MODELS, run_id, by=by, justification=justification)
    act.must_be_allowed()
    if unfit is not None:
        raise unfit
    agent = _agent_of(act.run)
    for one in _assistants(agent, assistant):
        _check_servable(models, one)
    _check_priced(act.head, models)
    chosen = e.ModelsChosen(
        slot=CHOICE, n=len(_choices(run_id)), assistant=assistant, models=list(models), by=by.ref, payload=act.payload
    )
    return act.done(chosen)


def _agent_of(run: Run) -> Agent | None:
    try:
        return registry.find(run.graph_id)
    except (UnknownAgent, UnknownVersion):
        return None  # only the run's worker knows the model


def _assistants(agent: Agent | None, name: str) -> list[Assistant]:
    if agent is None:
        return []
    found = [each for each in agent.assistants if name in ("", each.name)]
    if not found:
        known = ", ".join(each.name for each in agent.assistants) or "none: it uses no model"
        raise _refused("assistant", f"{agent.name} has no assistant {name!r}", f"one of: {known}")
    return found


def _unfit(models: Sequence[str]) -> InvalidInput | None:
    """Return the reason why these models can't be used here. The error is raised only after authorization."""
    try:
        _check_names(models)
    except InvalidInput as unfit:
        return unfit
    return None


def _check_names(models: Sequence[str]) -> None:
    from pydantic_ai.exceptions import UserError

    if not models:
        raise _refused("models", "none is named", "name at least one, such as openai:gpt-5")
    real = [model for model in models if not model.startswith(SCRIPTED)]
    try:
        check_models("models", real)
    except DefinitionError as error:
        raise _refused(
            "models", str(error).removeprefix("models: "), "a list such as openai:gpt-5, anthropic:claude-sonnet-4-0"
        ) from error
    if len(set(models)) < len(models):
        raise _refused("models", "one is named twice", "name each once")
    for model in real:
        try:
            real_model(model)
        except (UserError, ImportError, ValueError) as error:
            reason = " ".join(str(error).split()).partition(". To try")[0][:300]
            raise _refused("models", f"{model} can't be used here: {reason}", "another one, or set it up") from error


def _check_servable(models: Sequence[str], assistant: Assistant) -> None:
    for model in models:
        if model.startswith(SCRIPTED) and (assistant.offline is None or model != f"{SCRIPTED}{assistant.name}"):
            raise _refused("models", f"{model} is not a model of {assistant.name}", "a provider's, as provider:model")


def _check_priced(head: Head, models: Sequence[str]) -> None:
    if head.cap_usd_micro is not None and (unknown := prices.without_price(models)):
        problem = f"no price for {', '.join(unknown)}, but the run has a cap in dollars"
        raise _refused("models", problem, "an administrator sets it under Prices")


def _refused(field: str, problem: str, fix: str) -> InvalidInput:
    return InvalidInput(
        f"{problem[:1].upper()}{problem[1:]}.", errors=[{"field": field, "problem": problem, "fix": fix}]
    )
