"""What a message has come to, for people: a word and a tone for each outcome."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """A chip."""

    tone: str
    words: str


OUTCOMES = {
    "": Outcome("wait", "waits for its answer"),
    "answered": Outcome("ok", "answered"),
    "refused": Outcome("hold", "refused"),
    "failed": Outcome("bad", "failed"),
    "ended": Outcome("hold", "not answered: the run ended first"),
}


def outcome_of(name: str) -> Outcome:
    """A damaged row may name one that there is not."""
    return OUTCOMES.get(name, Outcome("bad", name))
