"""A person's word that a fork does again what its origin may have done: it counts once nobody may be sending that."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from ledger import events as e
from ledger.errors import IllegalTransition, RecordDamaged
from runs.engine.errors import JournalBroken
from runs.engine.forks import CHILD, DID_NOT, Evidence, Fork
from runs.engine.steps.forks import AGAIN
from runs.engine.tape import payload_of
from runs.journal.reader import forked_of
from runs.models import Run
from runs.services.calls import tool_here
from runs.services.forks.doubts import doubts_of
from runs.services.forks.starting_again import did
from runs.services.settling.senders import MayStillSend


def attested_again(run: Run, asked: e.WaitOpened, given: Any, *, now: datetime) -> str:
    """What an answer to a fork's question attests of those who sent what it may do again; empty for any other answer,
    and where there is proof. `asked` is the event that asks, `given` an answer that fits it, `now` the database's
    clock. Raises IllegalTransition, RecordDamaged."""
    if given.get("decision") != AGAIN:
        return ""
    try:
        told = forked_of(run.pk)
    except JournalBroken as broken:
        raise RecordDamaged(run.pk, f"a journal that can be trusted ({broken})") from broken
    effects = [] if told is None else [x for x in Fork(told).effects if _is_meant(run, asked, x)]
    try:
        words = [
            # That a run which was started is at work still is shown, and for whoever answers to judge.
            replace(doubts_of(effect, did), at_work=[]).attested(now=now, is_attested=bool(given.get("sender_is_gone")))
            for effect in effects
        ]
    except MayStillSend as why:
        raise IllegalTransition("do it again", str(run.state), str(why)) from why
    return ", ".join(dict.fromkeys(word for word in words if word))


def _is_meant(run: Run, asked: e.WaitOpened, effect: Evidence) -> bool:
    """Whether an effect may be what the call would do again: one of the same tool, or of one that this version doesn't
    have by that name; of a run that is to be started, any that was."""
    call = payload_of(asked).get("call")
    if effect.counts_as == DID_NOT:
        return False
    if effect.tool.startswith(f"{CHILD}:"):
        return bool(call == CHILD)
    return effect.tool == call or tool_here(run, effect.tool) is None
