"""The kinds of event that tell which models a run asks, and what of a conversation was made short. The others are in
`ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event
from ledger.kinds.screening import CONTENT_REFUSED

CHOICE = "models"
BY_SETTING = "system:settings"
NO_VALID_ANSWER, TOO_MANY_TURNS = "no_valid_answer", "too_many_turns"
# The codes of a ModelFailed that stands in the place of a request: none went out.
NEVER_SENT = frozenset({CONTENT_REFUSED, NO_VALID_ANSWER, TOO_MANY_TURNS})
COMPACTS = "compacts"  # in the payload of a ModelRequested: how many messages its answer is to stand for


class ModelsChosen(Event, fact="models"):
    """From here on the requests of `assistant` (empty: of every one) go to the first of `models` that serves; the slot
    is always `models`, and `n` counts. By `system:settings` where it is what the installation said when the run first
    asked. Payload: the justification, where a person moved it."""

    n: int
    assistant: str
    models: list[str]
    by: str


class TranscriptCompacted(Event, fact="compacted"):
    """The answer of this slot stands for the `messages` oldest of its conversation, the prompt not among them, from
    here on. Tokens are estimates, of the whole conversation. Payload: `of`, a digest of each message that was made
    short."""

    conversation: str
    model: str
    messages: int
    tokens_before: int
    tokens_after: int
