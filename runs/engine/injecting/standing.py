"""Where a run stands, and the state that its node has there: found out in memory, by doing the visit again from what is
on record. Nothing is sent and nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.canonical import Hasher, plain
from runs.engine.checkpoints.position import Position
from runs.engine.errors import brief
from runs.engine.messages.changes import BETWEEN, ENTRY, between, entered
from runs.engine.places import place_of
from runs.engine.recordings.recording import Recording, needed
from runs.engine.recordings.replaying import replay
from runs.engine.tape import Tape
from runs.engine.undo.declared import UNDO_NODE


class Unfit(Exception):
    """Nothing can be handed to it as it stands: `code` names why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class Standing:
    """`visit` (generation and number) and `place` are as ContextInjected has them; `node` the one that takes over what
    is handed, empty for one that its first node is yet to be found; `state` is plain data; `open` are the calls that
    have no outcome yet, each in words: what they were made with stays as it is."""

    visit: str
    place: int
    node: str
    state: dict[str, Any]
    open: tuple[str, ...] = ()

    @property
    def is_between(self) -> bool:
        """Whether it stands before a node."""
        return self.place == BETWEEN


async def stood(
    agent: Agent,
    run_id: str,
    created: e.RunCreated,
    stands: Position,
    earlier: Sequence[e.Event],
    *,
    depth: int,
    hasher: Hasher,
) -> Standing:
    """Where a run stands. Raises Unfit."""
    at, tape = stands.at, Tape(stands.tail)
    if at.node == UNDO_NODE:
        raise Unfit("undoing", "it undoes its effects")
    if at.fingerprint and not agent.is_own(at.fingerprint):
        raise Unfit("other_code", f"other code of {agent.graph_id} wrote its checkpoint than is here: resume it first")
    visit = f"{at.generation}.{at.visit}"
    if stands.entry is not None or at.node == "":
        node, state = stands.entry or (agent.start, _first(agent, created))
        return Standing(visit, BETWEEN, node, _fields(agent, between(tape, visit, state)))
    slots = [name for name in tape.slots if name.startswith(f"{visit}/") and name[len(visit) + 1].isdigit()]
    place = max(map(place_of, slots), default=ENTRY)
    begun = entered(tape, at)
    if place == ENTRY:
        return Standing(visit, ENTRY, at.node, _fields(agent, begun))
    recording = Recording(
        run_id=run_id,
        graph_id=agent.graph_id,
        fingerprint=agent.fingerprint(),
        created=created,
        node=at.node,
        visit=at.visit,
        generation=at.generation,
        state=at.state,
        events=tuple(stands.tail),
        before=needed(earlier, stands.tail),
        depth=depth,
    )
    found = await replay(recording, agent, hasher=hasher)
    if found.difference is not None:
        raise Unfit("differs", f"its visit can't be done again from what is on record: {found.difference}")
    state = found.states.get(place, found.last)
    if state is None:
        raise Unfit("no_data", "its node has a state that is no plain data where it stands")
    return Standing(visit, place, at.node, _fields(agent, state), tuple(_open(tape, slots)))


def _first(agent: Agent, created: e.RunCreated) -> Any:
    try:
        return plain(agent.begin(agent.input.model_validate(created.payload)))
    except Exception as error:  # the author's own code makes the first state
        raise Unfit("no_state", f"its input gives no first state: {brief(error)}") from error


def _fields(agent: Agent, state: Any) -> dict[str, Any]:
    if not isinstance(state, dict):
        raise Unfit("no_fields", f"the state of {agent.graph_id} has no fields: it can't be changed in parts")
    return state


def _open(tape: Tape, slots: Sequence[str]) -> list[str]:
    """Calls that have no outcome yet."""
    known = ((name, tape.slots[name]) for name in slots)
    return [f"{slot.what} at {name}" for name, slot in known if slot.what is not None and slot.now.outcome is None]
