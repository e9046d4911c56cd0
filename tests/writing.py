"""The two kinds of batch of a step, for tests that write to a journal by hand."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from ledger.events import Event
from runs.engine.journal import Batch, Entry, Journal, Reply


def intend(
    journal: Journal, events: Sequence[Event], *, entry: Entry | None = None, **more: Any
) -> Coroutine[Any, Any, Reply]:
    """Write TX1, with at most one fact."""
    return journal.commit(Batch(events, [entry] if entry else [], is_intent=True, **more))


def record(journal: Journal, events: Sequence[Event], **more: Any) -> Coroutine[Any, Any, Reply]:
    """Write TX2."""
    return journal.commit(Batch(events, **more))
