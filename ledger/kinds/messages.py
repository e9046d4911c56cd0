"""The kinds of event that tell of messages: requests that a run takes while it waits or works, and its answers; and of
what operators hand to a run that they let go on. The others are in `ledger/events.py`, which knows these too."""

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


class ContextInjected(Event):
    """An operator handed this to the run, and let it go on: fields of its state, or a message for the models that its
    node asks. It stood in `visit` (generation and number). The node takes over what was changed when the `place`-th
    call of its own line has ended; 0: before the next node is entered; -1: as it was entered, for it had made no call.
    The run was looked at with `seen` as its last event, whose hash is `head`. Payload: the justification; `change`,
    the fields with their new values, each whole, and `gone`, those that are no more, with the `number` of that state
    where it isn't 1; `before`, what of these fields there was; `message`, the text for the models."""

    by: str
    role: str
    visit: str
    place: int
    seen: int
    head: str
