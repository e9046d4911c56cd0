"""One recorded visit of a run, from its checkpoint on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger import events as e

_ENDS = (e.RunCompleted, e.RunFailed, e.RunCancelled)


@dataclass(frozen=True)
class Recording:
    """A recorded visit: its checkpoint and the `events` up to the next checkpoint, whose state is `after`.

    `before` are earlier events that the visit may read.
    """

    run_id: str
    graph_id: str
    fingerprint: str
    created: e.RunCreated
    node: str
    visit: int
    generation: int
    state: Any
    events: Sequence[e.Event]
    before: Sequence[e.Event] = ()
    after: Any = None
    depth: int = 0
    payloads: str = "full"
    placeholders: Sequence[str] = ()
    notes: Sequence[str] = ()
    times: Sequence[str] = field(default=())  # times of `events`, if known

    @property
    def name(self) -> str:
        """A label for lists: agent, node, visit and run."""
        return f"{self.graph_id}-{self.node}-{self.visit}-{self.run_id[:13]}"

    @property
    def ending(self) -> e.Event | None:
        """The event that ended the visit; None if the record has no end."""
        last: e.Event | None = None
        for event in self.events:
            if isinstance(event, e.UndoBegun):  # the visit is over; later events undo its effects
                return _ended_by(event)
            if isinstance(event, (e.RunRetried, e.RunResumed)):
                last = None
            elif isinstance(event, (*_ENDS, e.RunRenewed, e.RunHandedOff)) or self.is_next(event):
                last = last if isinstance(last, (e.RunRenewed, e.RunHandedOff)) else event
        return last

    def is_next(self, event: e.Event) -> bool:
        return isinstance(event, e.VisitEntered) and event.visit != self.visit


def _ended_by(begun: e.UndoBegun) -> e.Event:
    if begun.reason == "failed":
        return e.RunFailed(code=begun.code)
    return e.RunCancelled(by="", in_flight=[])


def recordings_of(
    run_id: str, events: Sequence[e.Event], cuts: Iterable[tuple[int, str, int, int, str, Any]], *, depth: int = 0
) -> list[Recording]:
    """Return every visit of a journal.

    A cut is the number of a checkpoint's event, with node, visit, generation, fingerprint and state.
    """
    created, known = events[0], list(cuts)
    assert isinstance(created, e.RunCreated)
    made = []
    for i, (seq, node, visit, generation, fingerprint, state) in enumerate(known):
        following = known[i + 1] if i + 1 < len(known) else None
        tail = events[seq : following[0] if following else None]
        made.append(
            Recording(
                run_id=run_id,
                graph_id=f"{created.agent}@{created.version}",
                fingerprint=fingerprint,
                created=created,
                node=node,
                visit=visit,
                generation=generation,
                state=state,
                events=tuple(tail),
                before=needed(events[:seq], tail),
                after=following[-1] if following else None,
                depth=depth,
            )
        )
    return made


def needed(earlier: Iterable[e.Event], tail: Sequence[e.Event]) -> tuple[e.Event, ...]:
    """Return the earlier events that a visit may need: its signals, the run's origin, and its models."""
    taken = {(x.name, x.n) for x in tail if isinstance(x, e.SignalTaken)}
    return tuple(
        x
        for x in earlier
        if isinstance(x, (e.RunCarriedOn, e.ModelsChosen))
        or (isinstance(x, (e.SignalReceived, e.SignalCarried)) and (x.name, x.n) in taken)
    )
