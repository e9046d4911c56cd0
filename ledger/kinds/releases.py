"""The kind of event that tells which version a start was given, where a ramp decided. The others are in
`ledger/events.py`, which knows this one too."""

from __future__ import annotations

from ledger.codec import Event


class VersionAssigned(Event):
    """A start by the agent's name came while a `ramp` was on, between two versions. `is_new`: it was given the newer
    side's. `why`: share, tag, halted (the ramp stood), unserved (no living worker had the newer one), unknown (whoever
    took the start had not). Of a share: `place`, where the start's key stands among 10,000, and how many of these
    (`share`) went over; `key` says which kind of key that was: business_key, idempotency_key, schedule, run. Of a tag:
    which."""

    ramp: int
    from_version: str
    to_version: str
    is_new: bool
    why: str
    share: int
    place: int
    key: str
    tag: str = ""
