"""The kind of event that tells what a run is found by. The others are in `ledger/events.py`, which knows this too."""

from __future__ import annotations

from ledger.codec import Event


class AttributesSet(Event, fact="result"):
    """What the run is found by from here on: those in `named` are as this event says, others stay as they are. `names`,
    `kinds` and `values` belong together by their place; what is named and has no value is unset. At the start it has no
    slot; `by` is whoever set them. Payload of a step: its arguments."""

    by: str
    named: list[str]
    names: list[str]
    kinds: list[str]
    values: list[str]
    requested_hash: str = ""
