"""The kind of event that tells that a run was moved to another version of its agent. The others are in
`ledger/events.py`, which knows this one too."""

from __future__ import annotations

from ledger.codec import Event


class RunMigrated(Event):
    """From here on the run, which was one of `of`, is one of `to` (name@version); `generation` counts how often it was
    moved. `how`: replayed (the visit under way goes on in the middle, as the node `node`), reentered (what it had done
    is left behind, and `node` is entered from its top), unbegun (it had entered none). It stood in the `visit`-th
    visit, whose calls have `slots` as their generation. `fingerprint` is of the code that it was tried with. Payload:
    the justification, the `state` that it goes on with, the mapping of `nodes`, the function that made the state, and
    what was answered from the record and what is made anew."""

    of: str
    to: str
    generation: int
    how: str
    node: str
    visit: int
    slots: int
    fingerprint: str
    by: str
