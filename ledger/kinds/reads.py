"""The kinds of event that tell of reads that were not made, or were made anew. The others are in `ledger/events.py`,
which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class CachedReadTaken(Event, fact="result"):
    """A pure call was answered by what another call had read at `read_at`: the one of `slot_read` in `run_read`.
    Payload: arguments and result."""

    tool: str
    requested_hash: str
    read_at: str
    run_read: str
    slot_read: str


class ToolReadAnew(Event, fact="read_anew"):
    """A pure call was made for the `n`-th time more, since what was on record of it had become too old and nothing
    had been made of it yet. Its outcome stands from here on: `code` is that of a definite failure, empty where there is
    an answer. Payload: arguments and result, or message and details."""

    n: int
    tool: str
    requested_hash: str
    code: str = ""
