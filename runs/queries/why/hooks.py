"""Where other rooms and apps add to the answer: what else keeps a run, and what else may be done about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from runs.queries.why.acts import Offer
from runs.queries.why.seen import Cause, Evidence, Reader, Seen, Who


@dataclass(frozen=True, slots=True)
class Found:
    """What keeps a run, as somebody else knows it."""

    cause: Cause
    sentence: str
    who: Who
    since: datetime | None = None
    until: datetime | None = None
    evidence: tuple[Evidence, ...] = ()


# What comes before all that a run's own rows tell, of one that has not ended. The first that knows something counts.
judges: list[Callable[[Seen], Found | None]] = []
# What may be done besides, about what a run waits for.
offers: list[Callable[[Seen, Reader], list[Offer]]] = []
# What else is the matter, in a sentence; empty: nothing.
remarks: list[Callable[[Seen], str]] = []
