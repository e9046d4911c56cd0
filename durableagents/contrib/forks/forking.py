"""Fork a run: start a new run at a visit of another one, with the state recorded there.

One transaction writes the events in both journals and an override record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from pydantic import ValidationError

from durableagents.contrib.forks.points import ForkPoint, cut_at, refusal, why_none
from ledger import events as e
from ledger.actors import Actor
from ledger.codec import pack
from ledger.erasure import erased
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web import misfit
from runs.engine.agents import Agent, registry
from runs.engine.budget import Budget
from runs.engine.canonical import plain
from runs.engine.errors import describe_error
from runs.engine.forks import FORK, Evidence
from runs.engine.migrating import Moving, lost_of
from runs.engine.migration import UnknownFormat
from runs.fleet.agent_versions import state_format
from runs.models import Run
from runs.services import lifecycle, related_runs
from runs.services.command import Act
from runs.services.lifecycle import Plan
from runs.services.starts import keys

MAX_BYTES = 4 * 2**20  # maximum packed size of the facts about its origin that a new run receives


class EffectsChanged(DurableAgentsError):
    """The run's effects have changed since the requester saw them."""

    status, code, title = 409, "effects-changed", "The run has progressed since"

    def __init__(self, seen: int, found: int) -> None:
        super().__init__(
            f"There are now {found} effects after that point; you have seen {seen}. "
            "Nothing was started. Read the list of effects again.",
            effects=found,
        )


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A requested fork. `seen` is the number of effects that the requester was shown."""

    visit: int
    version: str = ""
    seen: int | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class PreparedFork:
    """A fork that was checked, but not created yet."""

    agent: Agent
    point: ForkPoint
    state: Any


def prepare(run: Run, request: ForkRequest) -> PreparedFork:
    """Check a requested fork; used for forks and for previews.

    Raises Erased, InvalidInput, RecordNotTrusted, UnknownVersion, EffectsChanged.
    """
    if run.erased_at is not None:
        raise erased(run.pk)
    if why := why_none(run):
        raise refusal("run", f"the run {why}", "fork it when it has ended")
    agent = registry.find(f"{run.agent}@{request.version or run.version}")
    point = cut_at(run, request.visit)
    if request.seen is not None and request.seen != len(point.effects):
        raise EffectsChanged(request.seen, len(point.effects))
    if point.visit.node not in agent.nodes:
        nodes = ", ".join(agent.nodes)
        problem = f"begins at node {point.visit.node}, which {agent.graph_id} doesn't have"
        raise refusal("visit", problem, f"choose another visit or version; its nodes: {nodes}")
    recorded, is_migrated = migrate_state(agent, run, point.snapshot.fingerprint, point.snapshot.state)
    state = _validated(agent, recorded)
    is_own = is_migrated or (agent.graph_id, point.snapshot.generation) == (run.graph_id, run.generation)
    if not is_own and (lost := sorted(set(lost_of(recorded, state)))):
        problem = f"of another version was recorded, and {agent.graph_id} has no field for {', '.join(lost[:5])}"
        raise refusal("state", problem, "choose another version, or give this one a migration of the state")
    return PreparedFork(agent, point, state)


def migrate_state(agent: Agent, run: Run, wrote: str, state: Any) -> tuple[Any, bool]:
    """Migrate a state to the agent's version. `wrote` is the fingerprint of the code that recorded it.

    Returns the state, and whether the agent has a migration for it. Raises InvalidInput.
    """
    is_numbered = state_format(run.graph_id, "") > 1
    moving = Moving(run.graph_id, agent, {}, number=state_format(run.graph_id, wrote), is_numbered=is_numbered)
    try:
        return moving.made_of(state), moving.makes_state
    except Exception as error:  # an unreadable number, or an error in the author's migration code
        why = str(error) if isinstance(error, UnknownFormat) else describe_error(error)
        problem = f"was recorded, and can't be migrated to {agent.graph_id}: {why}"
        raise refusal("state", problem, "choose another version") from error


def _validated(agent: Agent, state: Any) -> Any:
    """Return the recorded state as the version parses it.

    Raises InvalidInput, which names each field that doesn't fit.
    """
    try:
        return plain(agent.state.model_validate(state))
    except ValidationError as error:
        problems = [
            {
                "field": misfit.path(["state", *p["loc"]]),
                "problem": misfit.problem(p),
                "fix": "choose a version that the state fits",
            }
            for p in error.errors(include_url=False, include_input=False)[:20]
        ]
        raise InvalidInput(f"The recorded state does not fit {agent.graph_id}.", errors=problems) from error
    except (ValueError, TypeError) as error:
        raise refusal("state", f"can't be recorded: {error}", "choose another version") from error


@transaction.atomic
def fork(run_id: UUID, request: ForkRequest, *, by: Actor, justification: str, most: Budget | None = None) -> Run:
    """Start a run at a visit of this one. After an error nothing has changed.

    Raises NotFound, Forbidden, JustificationRequired, KeyTaken, VersionClosed, VersionChanged, and the errors of
    `prepare`.
    """
    key = lifecycle.find(run_id).business_key
    act = begin("fork", run_id, key, by=by, justification=justification)
    ready = prepare(act.run, request)
    point = ready.point
    forked = e.RunForked(
        origin=str(run_id),
        how=FORK,
        by=by.ref,
        visit=point.visit.visit,
        at_seq=point.visit.seq,
        node=point.visit.node,
        effects=len(point.effects),
        fences_all=point.fences_all,
        payload=act.payload
        | {"state": ready.state, "code": ready.agent.fingerprint(), "effects": as_json(point.effects)},
    )
    return create(act, ready.agent, forked, point.input, key, budget=request.budget, most=most)


def as_json(effects: Sequence[Evidence]) -> list[dict[str, Any]]:
    """Return effects as plain data."""
    return [effect.as_json() for effect in effects]


def begin(action: str, run_id: UUID, key: str, *, by: Actor, justification: str) -> Act:
    """Begin an act on the origin. Locks the business key, the origin's head and the related runs. Raises KeyTaken."""
    if key:
        keys.lock(lifecycle.find(run_id).agent, key)
    act = Act(action, run_id, by=by, justification=justification)
    related_runs.lock(run_id)
    others = keys.living(act.run.agent, key) if key else []
    if others:
        raise keys.KeyTaken(others[0])
    return act


def create(
    act: Act, agent: Agent, forked: e.RunForked, input_: Any, key: str, *, budget: Budget | None, most: Budget | None
) -> Run:
    """Create the new run, and write the event of the fork to both journals, in the origin's transaction."""
    if (size := len(pack(forked.payload, None) or b"")) > MAX_BYTES:
        problem = f"the run's effects after that point take {size} bytes, more than {MAX_BYTES}"
        raise refusal("visit", problem, "choose a later visit")
    origin = act.run
    plan = Plan(business_key=key) if key else None
    try:
        with transaction.atomic():
            run = lifecycle.accept(
                agent.graph_id, input_, by=act.by, tags=origin.tags, budget=budget, most=most, plan=plan, forked=forked
            ).run
    except IntegrityError as taken:
        if key and (others := keys.living(origin.agent, key)):
            raise keys.KeyTaken(others[0]) from taken
        raise
    run.forked_from, run.fork_how = origin.pk, forked.how
    run.save(update_fields=["forked_from", "fork_how"])
    made = e.ForkMade(fork=str(run.pk), how=forked.how, by=act.by.ref, visit=forked.visit, payload=act.payload)
    act.done(made, after={"fork": str(run.pk), "how": forked.how})
    return run
