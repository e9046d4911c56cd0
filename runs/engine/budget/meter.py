"""What a run has used and what is set aside for its calls under way: one per claim, made from the journal, so that a
replay knows what the live run knew.

The worker that has the run is the only one who uses anything, so it knows before it asks. The database holds the same
caps against each intent by itself (`runs_afford`), in case they were lowered meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger import events as e
from runs.engine.budget.amounts import NOTHING_USED, UNLIMITED, Breach, Caps, Usage, breaches, first_breach

Call = tuple[str, int]  # slot and attempt


class Meter:
    """One run's, for as long as a worker has it."""

    def __init__(self, caps: Caps = UNLIMITED, used: Usage = NOTHING_USED, *, counts_reads: bool = False) -> None:
        self.caps, self.used = caps, used
        self.counts_reads = counts_reads  # a pool does, so each goes on record before it is made
        self._reserved: dict[Call, Usage] = {}
        self.reserved = NOTHING_USED  # for all whose outcome is not on record; a thousand calls ask for it

    def breach(self, wanted: Usage, *, besides: Call | None = None) -> Breach | None:
        """The cap that this would break; what is set aside for the call `besides` is its own to use."""
        if self.caps == UNLIMITED:
            return None
        others = self.reserved if besides is None else self.reserved - self.set_aside(besides)
        return first_breach(self.caps, self.used, others, wanted)

    def breaches(self, wanted: Usage) -> list[Breach]:
        """All the caps that this would break."""
        return list(breaches(self.caps, self.used, self.reserved, wanted))

    def left(self) -> Caps:
        """What may be begun of each; None where there is no cap."""
        aside = self.reserved
        pairs = ((getattr(self.caps, n), getattr(self.used, n) + getattr(aside, n)) for n in Caps.__slots__)
        return Caps(*(None if most is None else max(0, most - gone) for most, gone in pairs))

    def set_aside(self, call: Call) -> Usage:
        """What a call under way is expected to use."""
        return self._reserved.get(call, NOTHING_USED)

    def has_room_for(self, intent: e.Event) -> bool:
        """Whether something is set aside for the call that this begins, so that there is less for others."""
        return self.set_aside((intent.slot or "", intent.attempt)) != NOTHING_USED

    def reserve(self, call: Call, wanted: Usage) -> None:
        """Set aside what a call is expected to use, until it is settled; anew, where it is tried once more."""
        past = self._reserved.get(call)
        self.reserved += wanted if past is None else wanted - past
        self._reserved[call] = wanted

    def release(self, call: Call) -> None:
        """It isn't begun after all: nothing is set aside for it any more."""
        self.reserved -= self._reserved.pop(call, NOTHING_USED)

    def book(self, events: Sequence[e.Event], usage: Usage) -> None:
        """Take in what was put on record: the debits, and what the step itself counts."""
        if usage is not NOTHING_USED:
            self.used += usage
        for event in events:
            if isinstance(event, e.BudgetDebited):
                self.used += debit_of(event)
            if event.slot is not None and event.FACT in _SETTLES:
                settled = self._reserved.pop((event.slot, event.attempt), None)
                self.reserved = self.reserved if settled is None else self.reserved - settled

    def begin_visit(self) -> None:
        """A consistent cut: no call is under way."""
        self._reserved.clear()
        self.reserved = NOTHING_USED


# What a call is over by, or its request: the next one sets aside anew.
_SETTLES = frozenset({"result", "accepted", "debit"})


def debit_of(event: e.BudgetDebited) -> Usage:
    """What a debit takes from the budget. A request whose model has no price costs nobody knows what."""
    return Usage(
        model_calls=event.model_calls,
        tokens_in=event.tokens_in,
        tokens_out=event.tokens_out,
        usd_micro=event.usd_micro or 0,
    )
