"""Pages of a run's transcript, for which only the events that are shown are read.
A row's place consists of its event and its position within that event; `idx` counts within its conversation."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.api.present import masked
from ledger.codec import size_of
from runs.story.folded import Opened, locked_story
from runs.story.transcript import Talk, TranscriptMessage, model_of, said_in

Place = tuple[int, int]
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One message, and the place after it."""

    following: Place
    shown: dict[str, Any]
    size: int


def transcript(
    run_id: UUID, *, most: int, most_bytes: float = math.inf, since: Place = (0, 0), skip: int = 0
) -> list[Row]:
    """Return up to `most` messages from a position on, in the journal's order, after skipping some.
    If the payloads exceed `most_bytes`, the result ends with the first row at which they do, but not before the
    second."""
    with locked_story(run_id) as kept:
        transcript = kept.fold.transcript
        seqs, talks, owners = transcript.events, transcript.talks, transcript.owners
        first = bisect_left(seqs, since[0])
        events = [(seq, talks[n]) for seq, n in zip(seqs[first:], owners[first:], strict=True)]
    rows: list[Row] = []
    numbers: dict[str, int] = {}
    models: dict[str, str] = {}
    total = 0
    for seq, nth, talk, one, size in _from(run_id, events, since, most):
        if talk.name not in numbers:
            numbers[talk.name] = said_before(run_id, talk, seq) + nth
        idx = numbers[talk.name]
        numbers[talk.name] += 1
        if skip > 0:
            skip -= 1
            continue
        if talk.name not in models:
            models[talk.name] = model_of(talk, Opened(run_id))
        rows.append(Row((seq, nth + 1), _present(talk, models[talk.name], idx, one), size))
        total += size
        if len(rows) == most or (total > most_bytes and len(rows) > 1):
            break
    return rows


def _from(
    run_id: UUID, events: list[tuple[int, Talk]], since: Place, most: int
) -> Iterator[tuple[int, int, Talk, TranscriptMessage, int]]:
    size = min(most, _AT_ONCE)
    for start in range(0, len(events), size):
        some = events[start : start + size]
        lines = Opened(run_id)([seq for seq, _ in some])
        for seq, talk in some:
            for nth, one in enumerate(said_in(lines[seq]) if seq in lines else ()):
                if (seq, nth) >= since:
                    yield seq, nth, talk, one, 0 if nth else size_of(lines[seq].sealed or b"")


def said_before(run_id: UUID, talk: Talk, seq: int) -> int:
    """Return the number of messages in a conversation before an event; the counts are cached."""
    n = bisect_left(talk.events, seq)
    counts = talk.counts
    while len(counts) < n:
        some = talk.events[len(counts) : min(n, len(counts) + _AT_ONCE)]
        lines = Opened(run_id)(some)
        total = counts[-1] if counts else 0
        more = []
        for one in some:
            total += len(said_in(lines[one])) if one in lines else 0
            more.append(total)
        # A new list is stored each time, because concurrent counts have the same result.
        counts = talk.counts = [*counts, *more]
    return counts[n - 1] if n else 0


def _present(talk: Talk, model: str, idx: int, one: TranscriptMessage) -> dict[str, Any]:
    return {
        "conversation": talk.name,
        "idx": idx,
        "role": one.role,
        "content": one.text if one.data is None else masked(one.data),
        "about": one.title or None,
        "tool": one.tool or None,
        "node": talk.node or None,
        "model": model or None,
        "tokens_in": one.tokens_in,
        "tokens_out": one.tokens_out,
        "seq": one.seq,
        "at": one.at,
    }
