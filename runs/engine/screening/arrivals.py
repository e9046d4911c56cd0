"""Screening of what comes to a node from outside: a signal, a person's answer, a child's output.

The verdict is on record before anything that the node makes of it, also where every hook let it pass; so a replay gives
the same. What a node had gone on from before there were hooks stays as it was.
"""

from __future__ import annotations

from typing import Any

from runs.engine.canonical import plain
from runs.engine.content.hooks import Piece
from runs.engine.errors import ContentRefused
from runs.engine.screening.verdicts import look, recorded, refused_at, screens_of, standing
from runs.engine.tape import Slot, Tape, payload_of
from runs.engine.visit import Visit


async def received(
    visit: Visit, slot: str, record: Slot, content: Any, *, source: str, name: str, place: str = "0"
) -> Any:
    """The content as the node gets it. Raises ContentRefused."""
    past = record.now
    seen = {each for known in past.screenings for each in payload_of(known).get("seen", ())}
    if place in seen:
        return _known(record, place, content)
    piece = Piece(
        content=plain(content),
        source=source,
        name=name,
        to="node",
        target=visit.node,
        agent=visit.agent.graph_id,
        run_id=visit.run_id,
    )
    screens = [each for each in screens_of(visit) if each.is_for(piece)]
    if not screens or _went_on(visit.tape, slot):
        return content
    findings = await look(visit, screens, {place: piece})
    is_refused = any(each.is_refused for each in findings)
    stands = {} if is_refused or not findings else {place: findings[-1].stands}
    events = recorded(
        visit,
        slot,
        record.current,
        past,
        to=f"node {visit.node}",
        asked=screens,
        pieces={place: piece},
        findings=findings,
        stands=stands,
        seen=[place],
    )
    for event in events:  # on record with the next step, or with the run's end: before that nothing goes by it
        visit.buffer(event)
    return _known(record, place, content)


def _known(record: Slot, place: str, content: Any) -> Any:
    if place in refused_at(record):
        last = next(each for each in reversed(record.now.withheld) if (each.place, each.verdict) == (place, "refused"))
        raise ContentRefused(last.source, last.to, f"{last.hook}@{last.version}", last.reason)
    return standing(record).get(place, content)


def _went_on(tape: Tape, slot: str) -> bool:
    """Whether anything is on record that the node came to after this call, on its own line or on one that it belongs
    to."""
    own = slot.split("/")
    return any(
        _is_after(tape, own, name.split("/"))
        for name, known in tape.slots.items()
        if name[:1].isdigit() and (known.what is not None or known.branches is not None)
    )


def _is_after(tape: Tape, own: list[str], other: list[str]) -> bool:
    for n, (mine, theirs) in enumerate(zip(own, other, strict=False)):
        if mine != theirs:
            parent = tape.slots.get("/".join(own[:n]))
            is_line = parent is None or parent.branches is None
            return is_line and n > 0 and int(theirs) > int(mine)
    return False
