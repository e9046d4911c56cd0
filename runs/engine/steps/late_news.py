"""Reports late results to operators: the recorded outcomes that they contradict, and the effect of a retry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from ledger import events as e
from runs.engine.tape import CALLED_BACK, Attempt, Tape

Fate = Literal["kept", "asked", "repeated"]
# What a retry does with a call that has a late result.
_FATES: dict[Fate, str] = {
    "kept": (
        "a retry keeps to what is on record, and sends nothing for it: settle outside of this run what the answer was"
        " about, or cancel"
    ),
    "asked": (
        "after a retry the call doesn't go out again before a person, or the other side where it can be asked, has said"
        " what became of it"
    ),
    "repeated": (
        "the call has gone out again since, and a retry goes on with that further attempt: settle outside of this run"
        " what the answer was about, or cancel"
    ),
}


def late_news(events: Iterable[e.Event]) -> list[dict[str, Any]]:
    """Return late results that contradict the record and that nobody has settled since.

    The events are those of the run's calls, in order.
    """
    whole = list(events)
    tape, late = Tape(whole), []
    for event in whole:
        if event.slot is None or not isinstance(event, (e.CallbackArrivedLate, e.ToolAnsweredLate)):
            continue
        slot = tape.slot(event.slot)
        known = slot.at(event.attempt)
        is_news = isinstance(event, e.CallbackArrivedLate) or event.outcome == "happened"
        is_news |= getattr(event, "contradicts", "") == "did_not"
        is_open = event.slot in tape.told_by_witnesses() and event.attempt == slot.current
        if is_news and known.is_contradicted and not known.has_happened and not is_open:
            news = {"slot": event.slot, "attempt": event.attempt, "tool": event.tool, "came": event.KIND}
            late.append(news | {"told": getattr(event, "outcome", CALLED_BACK), **_outcome(known)})
    return late


def _outcome(attempt: Attempt) -> dict[str, str]:
    """Return the recorded outcome. A verdict outranks a refusal, whose code may look like a verdict."""
    if attempt.reconciled is not None:
        return {"on_record": attempt.reconciled.verdict}
    if isinstance(attempt.result, e.ToolFailed):
        return {"on_record": "refused", "code": attempt.result.code}
    return {"on_record": "no_answer"}


def untold(tape: Tape) -> list[dict[str, Any]]:
    """Return the late results named by a retry that were not reported to an operator yet and are not settled."""
    return [
        news
        for news in tape.unheard
        if news["slot"] not in tape.slots or tape.slot(news["slot"]).at(news["attempt"]).is_contradicted
    ]


def problem(tape: Tape, news: Iterable[dict[str, Any]]) -> str:
    """Describe late results and what a retry does about them, separately for each group of calls treated alike."""
    fates: dict[Fate, list[str]] = {}
    for each in news:
        fates.setdefault(_fate(tape, each["slot"]), []).append(each["tool"])
    texts = [
        _FATES[fate] if len(fates) == 1 else f"{', '.join(tools)}: {_FATES[fate]}" for fate, tools in fates.items()
    ]
    return f"an answer came when the run had gone on without it; {'; '.join(texts)}"


def _fate(tape: Tape, name: str) -> Fate:
    """Return what will happen to a call when its node is entered again.

    Calls that are not on the tape belong to earlier visits.
    """
    slot = tape.slots.get(name)
    if slot is None or slot.now.outcome is not None or tape.went_on_from(name):
        return "kept"
    if slot.now.intent is not None and not slot.now.is_contradicted:
        return "repeated"
    # A callback timeout counts as an outcome, unless a retry waits for the callback again.
    return "kept" if slot.now.accepted is not None and not slot.now.is_unknown else "asked"
