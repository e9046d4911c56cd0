"""The kinds of event that tell of messages: requests that a run takes while it waits or works, and its answers. The
others are in `ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class MessageReceived(Event):
    """Somebody sent the run its `n`-th message, a request of a name; it is handled when the run comes to where it may
    be, after those before it. Payload: the request, as it was checked."""

    name: str
    n: int
    by: str


class MessageHandled(Event):
    """What became of the `n`-th message: answered, refused or failed. It was handled in `visit` (generation and
    number), while the node waited at its `place`-th call, or, where that is 0, when the node was done; there a replay
    takes over what it changed. `calls` are the slots of calls that waited for it. Payload: the answer and the state's
    fields that were changed, with the `number` of that state where it isn't 1; or code and message."""

    name: str
    n: int
    outcome: str
    visit: str
    place: int
    calls: list[str]
