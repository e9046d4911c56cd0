"""Forking: create a run within the course of another, with events in both journals and a record, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from pydantic import ValidationError

from ledger import events as e
from ledger.actors import Actor
from ledger.codec import pack
from ledger.erasure import erased
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web import misfit
from runs.engine.agents import Agent, registry
from runs.engine.budget import Budget
from runs.engine.canonical import plain
from runs.engine.errors import brief
from runs.engine.forks import FORK, Evidence
from runs.engine.migrating import Moving, lost_of
from runs.engine.migration import UnknownFormat
from runs.fleet.agent_versions import state_format
from runs.models import Run
from runs.services import lifecycle, related_runs
from runs.services.command import Act
from runs.services.forks.points import Cutting, cutting, refused, why_none
from runs.services.lifecycle import Accepted, Plan
from runs.services.starts import keys

MOST_BYTES = 4 * 2**20  # packed size of what a fork is told of its origin
NOT_GIVEN: Any = object()


class EffectsChanged(DurableAgentsError):
    """The run has other effects by now than the requester has seen."""

    status, code, title = 409, "effects-changed", "The run has done more since"

    def __init__(self, seen: int, found: int) -> None:
        super().__init__(
            f"There are now {found} effects after that point; you have seen {seen}. "
            "Nothing was started: read them again.",
            effects=found,
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested fork; `seen` is how many effects the requester was shown."""

    visit: int
    version: str = ""
    state: Any = NOT_GIVEN
    seen: int | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked fork that was not made yet."""

    agent: Agent
    cut: Cutting
    state: Any


def prepared(run: Run, wanted: Wanted) -> Prepared:
    """Check a fork, also for a preview. Raises Erased, InvalidInput, NotToBeTrusted, UnknownVersion, EffectsChanged."""
    if run.erased_at is not None:
        raise erased(run.pk)
    if why := why_none(run):
        raise refused("run", why, "fork it when it has ended")
    agent = registry.find(f"{run.agent}@{wanted.version or run.version}")
    cut = cutting(run, wanted.visit)
    if wanted.seen is not None and wanted.seen != len(cut.effects):
        raise EffectsChanged(wanted.seen, len(cut.effects))
    if cut.point.node not in agent.nodes:
        nodes = ", ".join(agent.nodes)
        problem = f"begins at node {cut.point.node}, which {agent.graph_id} doesn't have"
        raise refused("visit", problem, f"choose another visit or version; its nodes: {nodes}")
    if wanted.state is not NOT_GIVEN:
        return Prepared(agent, cut, _fitting(agent, wanted.state, is_given=True))
    recorded, is_made = as_of(agent, run, cut.snapshot.fingerprint, cut.snapshot.state)
    state = _fitting(agent, recorded, is_given=False)
    is_its_own = is_made or (agent.graph_id, cut.snapshot.generation) == (run.graph_id, run.generation)
    if not is_its_own and (lost := sorted(set(lost_of(recorded, state)))):
        problem = f"of another version was recorded, and {agent.graph_id} has no place for {', '.join(lost[:5])}"
        raise refused("state", problem, "give a state")
    return Prepared(agent, cut, state)


def as_of(agent: Agent, run: Run, wrote: str, state: Any) -> tuple[Any, bool]:
    """Migrate a state recorded by code with fingerprint `wrote`; returns if it changed. Raises InvalidInput."""
    is_numbered = state_format(run.graph_id, "") > 1
    moving = Moving(run.graph_id, agent, {}, number=state_format(run.graph_id, wrote), is_numbered=is_numbered)
    try:
        return moving.made_of(state), moving.makes_state
    except Exception as error:  # an unreadable number, or the author's migration code
        why = str(error) if isinstance(error, UnknownFormat) else brief(error)
        problem = f"was recorded, and can't be brought up to {agent.graph_id}: {why}"
        raise refused("state", problem, "give a state, or choose another version") from error


def _fitting(agent: Agent, state: Any, *, is_given: bool) -> Any:
    """Validate the state against the version. Raises InvalidInput naming each field that doesn't fit."""
    try:
        return plain(agent.state.model_validate(state, extra="forbid" if is_given else None))
    except ValidationError as error:
        fix = f"see the state of {agent.graph_id}" if is_given else "give a state that fits this version"
        problems = [
            {"field": misfit.path(["state", *p["loc"]]), "problem": misfit.problem(p), "fix": fix}
            for p in error.errors(include_url=False, include_input=False)[:20]
        ]
        what = "state" if is_given else "recorded state"
        raise InvalidInput(f"The {what} does not fit {agent.graph_id}.", errors=problems) from error
    except (ValueError, TypeError) as error:
        raise refused("state", f"can't be recorded: {error}", "give plain JSON") from error


@transaction.atomic
def fork(run_id: UUID, wanted: Wanted, *, by: Actor, justification: str, most: Budget | None = None) -> Run:
    """Create a run that begins at a visit of this one; on errors nothing has changed.
    Raises NotFound, Forbidden, JustificationRequired, KeyTaken, VersionClosed, VersionChanged, and what `prepared`
    raises."""
    key = lifecycle.find(run_id).business_key
    act = begun("fork", run_id, key, by=by, justification=justification)
    ready = prepared(act.run, wanted)
    cut = ready.cut
    told = e.RunForked(
        origin=str(run_id),
        how=FORK,
        by=by.ref,
        visit=cut.point.visit,
        at_seq=cut.point.seq,
        node=cut.point.node,
        effects=len(cut.effects),
        fences_all=cut.fences_all,
        payload=act.payload | {"state": ready.state, "code": ready.agent.fingerprint(), "effects": shown(cut.effects)},
    )
    return made(act, ready.agent, told, cut.input, key, budget=wanted.budget, most=most)


def shown(effects: list[Evidence]) -> list[dict[str, Any]]:
    """Return effects as plain data."""
    return [effect.as_json() for effect in effects]


def begun(action: str, run_id: UUID, key: str, *, by: Actor, justification: str) -> Act:
    """Begin the action on the origin; locks the business key, the head and related runs. Raises KeyTaken."""
    if key:
        keys.lock(lifecycle.find(run_id).agent, key)
    act = Act(action, run_id, by=by, justification=justification)
    related_runs.lock(run_id)
    others = keys.living(act.run.agent, key) if key else []
    if others:
        raise keys.KeyTaken(others[0])
    return act


def made(
    act: Act, agent: Agent, told: e.RunForked, input: Any, key: str, *, budget: Budget | None, most: Budget | None
) -> Run:
    """Create the new run and write the event of the fork to both journals, in the origin's transaction."""
    if (size := len(pack(told.payload, None) or b"")) > MOST_BYTES:
        problem = f"what the run did after that point takes {size} bytes, more than {MOST_BYTES}"
        raise refused("visit", problem, "choose a later visit")
    origin = act.run
    plan = Plan(business_key=key) if key else None
    try:
        with transaction.atomic():
            accepted: Accepted = lifecycle.accept(
                agent.graph_id, input, by=act.by, tags=origin.tags, budget=budget, most=most, plan=plan, forked=told
            )
    except IntegrityError as taken:
        if key and (others := keys.living(origin.agent, key)):
            raise keys.KeyTaken(others[0]) from taken
        raise
    run = accepted.run
    run.forked_from, run.fork_how = origin.pk, told.how
    run.save(update_fields=["forked_from", "fork_how"])
    made_of_it = e.ForkMade(fork=str(run.pk), how=told.how, by=act.by.ref, visit=told.visit, payload=act.payload)
    act.done(made_of_it, after={"fork": str(run.pk), "how": told.how})
    return run
