"""The kinds of event that tell of a run that goes on as another one: renewed, or handed off to another agent. The
others are in `ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class RunRenewed(Event):
    """The run goes on as `successor`, of the same version, with an empty journal: its end follows."""

    successor: str


class RunHandedOff(Event):
    """The run goes on as `successor`, of another `agent` (name@version): its end follows."""

    successor: str
    agent: str


class RunCarriedOn(Event):
    """The run goes on where `origin` ended; `how`: renewal, handoff. `first` is the run that all began with, `turn` how
    many runs have gone before this one, and `handoffs` how many of them handed off. `business_key` is what it keeps of
    its origin's. A renewal begins at `node`. Payload: `state` of a renewal, and the fingerprint of the `code` that made
    it, unless the event is older; `transcript` of a handoff, if one was given."""

    origin: str
    first: str
    turn: int
    handoffs: int
    how: str
    node: str = ""
    business_key: str = ""


class SignalCarried(Event):
    """A signal that no call of the origin took: there it was the `of_n`-th of its name, here it is the `n`-th. `by` is
    whoever sent it. Payload: what was sent."""

    name: str
    n: int
    of_n: int
    by: str
