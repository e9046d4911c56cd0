"""The kinds of event that tell what a run may use, what is set aside, and what was used. Money is in millionths of a US
dollar. The others are in `ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class ModelRouted(Event, fact="routed"):
    """The `n`-th time that a request goes out: which model is asked, and what is set aside for the answer. `price` is
    the row of the price table that counts; without one `usd_micro` is None: nobody knows what it costs."""

    n: int
    model: str
    price: int | None
    tokens_in: int
    tokens_out: int
    usd_micro: int | None


class BudgetSet(Event):
    """What the run may use from here on, all of it: `caps` by resource (money in millionths of a dollar); what isn't
    named has no cap. `until` is when its time is up. Payload: the justification, where a person changed it."""

    by: str
    caps: dict[str, int]
    until: str


class BudgetDebited(Event, fact="debit"):
    """What the `n`-th request of a slot used. `is_estimate`: its answer was lost, and this is what had been set
    aside."""

    n: int
    model: str
    price: int | None
    model_calls: int
    tokens_in: int
    tokens_out: int
    usd_micro: int | None
    is_estimate: bool = False


class BudgetExceeded(Event):
    """Something that was to be begun would have broken a cap, so it wasn't; the run stands still until somebody raises
    it. `resource` is the cap's, or `time`; `call` is the slot that wanted it."""

    resource: str
    most: int
    used: int
    reserved: int
    wanted: int
    call: str | None = None
