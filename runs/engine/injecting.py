"""Applies a JSON merge patch (RFC 7396) to a run's state. Fields that the agent's model rejects are reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.web import misfit
from runs.engine.agents import Agent
from runs.engine.canonical import Hasher, plain
from runs.engine.checkpoints.position import Position
from runs.engine.errors import describe_error
from runs.engine.messages import BETWEEN, ENTRY, between, difference, entered
from runs.engine.migrating import lost_of
from runs.engine.recordings.recording import Recording, needed
from runs.engine.recordings.replaying import replay
from runs.engine.tape import Tape
from runs.engine.undo import UNDO_NODE
from runs.engine.visit import place_of


@dataclass(frozen=True, slots=True)
class Patched:
    """A state after a patch. `told` is to be recorded; `lines` lists the changed values as (path, before, after)."""

    state: dict[str, Any]
    told: dict[str, Any]
    lines: list[tuple[str, Any, Any]]

    @property
    def fields(self) -> list[str]:
        return sorted([*self.told.get("change", ()), *self.told.get("gone", ())])


class Misfit(ValueError):
    """The patch doesn't fit. The error lists each problem with its field and fix."""

    def __init__(self, problems: list[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(f"{field} {problem}" for field, problem, _ in problems))
        self.problems = problems


def merged(state: Any, patch: Any) -> Any:
    """Merge a patch as in RFC 7396.

    Objects are merged member by member, and null removes a member; anything else replaces the old value.
    """
    if not isinstance(patch, dict):
        return patch
    made = dict(state) if isinstance(state, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made


def patched(model: type[BaseModel], number: int, state: dict[str, Any], patch: dict[str, Any]) -> Patched:
    """Apply a patch to a state of schema `number`. Raises Misfit."""
    wanted = merged(state, patch)
    try:
        fitting = plain(model.model_validate(wanted))
        model.model_validate(fitting)
    except ValidationError as error:
        problems = [(f"patch.{where}" if where else "patch", what) for where, what in misfit.problems(error)]
        raise Misfit([(field, what, "see the schema of the agent's state") for field, what in problems]) from error
    except ValueError as error:
        raise Misfit([("patch", f"is not plain data: {error}", "give JSON that fits the agent's state")]) from error
    if nowhere := sorted(set(lost_of(wanted, fitting))):
        fix = f"one of {', '.join(model.model_fields)}"
        raise Misfit([(f"patch.{path}", "is not a field of the agent's state", fix) for path in nowhere[:20]])
    changes = difference(state, fitting)
    if not changes:
        raise Misfit([("patch", "changes nothing in the run's state at that place", "leave it out")])
    names = {*changes.get("change", ()), *changes.get("gone", ())}
    changes["before"] = {name: state[name] for name in sorted(names) if name in state}
    if number > 1:
        changes["number"] = number
    return Patched(fitting, changes, list(lines_of(state, fitting)))


def lines_of(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from lines_of(before.get(name), after.get(name), f"{path}.{name}" if path else str(name))
    elif before != after or type(before) is not type(after):
        yield path, before, after


class Unfit(Exception):
    """The run can't be patched now. `code` says why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class PatchPosition:
    """A position at which a run can be patched, in the form used in ContextInjected.

    A patch doesn't change the arguments of calls that are `open`.
    """

    visit: str
    place: int
    node: str
    state: dict[str, Any]
    open: tuple[str, ...] = ()

    @property
    def is_between(self) -> bool:
        return self.place == BETWEEN


async def stood(
    agent: Agent,
    run_id: str,
    created: e.RunCreated,
    position: Position,
    earlier: Sequence[e.Event],
    *,
    depth: int,
    hasher: Hasher,
) -> PatchPosition:
    """Return the position at which a run can be patched. Raises Unfit."""
    at, tape = position.at, Tape(position.tail)
    if at.node == UNDO_NODE:
        raise Unfit("undoing", "it is undoing its effects")
    if at.fingerprint and not agent.is_own(at.fingerprint):
        raise Unfit("other_code", f"other code of {agent.graph_id} wrote its checkpoint: resume it first")
    visit = f"{at.generation}.{at.visit}"
    if position.entry is not None or at.node == "":
        node, state = position.entry or (agent.start, _initial_state(agent, created))
        return PatchPosition(visit, BETWEEN, node, _fields(agent, between(tape, visit, state)))
    slots = [name for name in tape.slots if name.startswith(f"{visit}/") and name[len(visit) + 1].isdigit()]
    place = max(map(place_of, slots), default=ENTRY)
    begun = entered(tape, at)
    if place == ENTRY:
        return PatchPosition(visit, ENTRY, at.node, _fields(agent, begun))
    recording = Recording(
        run_id=run_id,
        graph_id=agent.graph_id,
        fingerprint=agent.fingerprint(),
        created=created,
        node=at.node,
        visit=at.visit,
        generation=at.generation,
        state=at.state,
        events=tuple(position.tail),
        before=needed(earlier, position.tail),
        depth=depth,
    )
    found = await replay(recording, agent, hasher=hasher)
    if found.difference is not None:
        raise Unfit("differs", f"its visit can't be repeated from the record: {found.difference}")
    state = found.states.get(place, found.last)
    if state is None:
        raise Unfit("no_data", "its node's state is not plain data at this place")
    return PatchPosition(visit, place, at.node, _fields(agent, state), tuple(_open(tape, slots)))


def _initial_state(agent: Agent, created: e.RunCreated) -> Any:
    try:
        return plain(agent.begin(agent.input.model_validate(created.payload)))
    except Exception as error:  # the author's own code builds the first state
        raise Unfit("no_state", f"its first state can't be built from its input: {describe_error(error)}") from error


def _fields(agent: Agent, state: Any) -> dict[str, Any]:
    if not isinstance(state, dict):
        raise Unfit("no_fields", f"the state of {agent.graph_id} has no fields, so it can't be changed in part")
    return state


def _open(tape: Tape, slots: Sequence[str]) -> list[str]:
    known = ((name, tape.slots[name]) for name in slots)
    return [f"{slot.what} at {name}" for name, slot in known if slot.what is not None and slot.now.outcome is None]
