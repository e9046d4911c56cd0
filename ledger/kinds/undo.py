"""The kinds of event that tell how a run's effects are undone. The others are in `ledger/events.py`, which knows these
too."""

from __future__ import annotations

from ledger.codec import Event


class UndoRegistered(Event, fact="undo"):
    """If the call of this slot has its effect, it can be undone: written with its intent. `undo` is the name by which
    the agent knows how, `tool` what is called then."""

    undo: str
    tool: str


class UndoAsked(Event):
    """The run is to end for this `code`, and its effects are to be undone first. Payload: the error that it ends
    with."""

    by: str
    code: str


class UndoBegun(Event):
    """From here on the run undoes its effects, and then ends as it would have ended: failed with `code`, or cancelled.
    Nobody's wish to cancel and no cap stands in the way. Payload: what it ends with, and each effect, the last first,
    with what undoes it or why it stays."""

    reason: str
    code: str
    effects: int


class EffectUndone(Event, fact="undone"):
    """The call of this slot undid the effect of `of_slot` and `of_attempt`; `of_run` is empty where that was this run's
    own."""

    of_run: str
    of_slot: str
    of_attempt: int
    tool: str
    external_id: str | None = None


class EffectLeft(Event, fact="left"):
    """A person let the effect of `of_slot` and `of_attempt` stand, asked at this slot. Payload: what was wrong with
    undoing it, and the justification."""

    of_run: str
    of_slot: str
    of_attempt: int
    tool: str
    by: str
