"""Preview of the effects that a cancel would undo or leave.
Pages use a rate-limited cache, but cancels don't."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from runs.engine.agents import Agent, registry
from runs.engine.errors import JournalBroken, UnknownAgent, UnknownVersion
from runs.engine.tape import payload_of
from runs.engine.undoing.plan import Effect, Plan, effects_of
from runs.journal import reader
from runs.models import ENDED, Run, State
from runs.services.allowed import UNDOING

UNDO: Final = "undo"
LEAVE: Final = "leave"
CHOICES = (UNDO, LEAVE)


@dataclass(frozen=True, slots=True)
class Preview:
    """A run's current effects, the last one first."""

    effects: list[Effect]

    @property
    def to_undo(self) -> list[Effect]:
        return [effect for effect in self.effects if effect.what != "stays" or effect.is_in_doubt]

    @property
    def is_needed(self) -> bool:
        return bool(self.to_undo)


def preview(run_id: UUID, graph_id: str) -> Preview:
    """Return a preview of undoing a run's effects. Raises JournalBroken."""
    effects = reader.effects_of(run_id)
    return Preview(effects_of(_agent(graph_id), effects.events, effects.reversible))


@dataclass(frozen=True, slots=True)
class UndoView:
    """A run's effects for a page, and the outcome for each, by run, slot and attempt."""

    state: str
    is_needed: bool
    effects: list[Effect]
    became: dict[tuple[str, str, int], str]


def undo_view(run: Run) -> UndoView:
    """Return the effects and their outcomes; if the run isn't undoing, the preview. Raises JournalBroken."""
    if not run.is_undoing:
        seen = preview(run.pk, run.graph_id)
        is_over = run.state in ENDED
        left = seen.to_undo if said_at_end(run) == LEAVE else []
        became = {(x.run, x.slot, x.attempt): "left" for x in left}
        return UndoView("done" if is_over else "possible", seen.is_needed and not is_over, seen.effects, became)
    recorded = reader.undo_of(run.pk)
    begun = next((x for x in recorded if isinstance(x, e.UndoBegun)), None)
    if begun is None:  # just reopened: no worker has made the plan yet
        return UndoView("under_way", False, preview(run.pk, run.graph_id).effects, {})
    became = {
        (x.of_run, x.of_slot, x.of_attempt): "undone" if isinstance(x, e.EffectUndone) else "left"
        for x in recorded
        if isinstance(x, (e.EffectUndone, e.EffectLeft))
    }
    plan = Plan.model_validate(begun.payload)
    return UndoView("done" if run.state in ENDED else "under_way", False, plan.all(), became)


def _agent(graph_id: str) -> Agent | None:
    """Return the agent; None if this process lacks the version, in which case the arguments are unknown."""
    try:
        return registry.find(graph_id)
    except (UnknownAgent, UnknownVersion):
        return None


def chosen(run: Run, effects: str | None) -> dict[str, str]:
    """Return a cancel's choice about effects for its record; empty if there is nothing to undo.
    Raises IllegalTransition, and InvalidInput for an invalid or missing choice. If the choice is missing, the error
    lists what could be undone."""
    if effects is not None and effects not in CHOICES:
        fix = f"one of {', '.join(CHOICES)}"
        problem = {"field": "effects", "problem": "not a choice", "fix": fix}
        raise InvalidInput(f"effects must be {fix}.", errors=[problem])
    if run.is_undoing:
        raise IllegalTransition("cancel", str(run.state), UNDOING)
    try:
        seen = preview(run.pk, run.graph_id)
    except JournalBroken as broken:
        if effects == UNDO:
            hint = f"The run's journal is damaged, so nothing can be undone: {broken}. Leave its effects."
            raise IllegalTransition("cancel", str(run.state), hint) from broken
        return {}
    if not seen.is_needed:
        return {}
    if effects is None:
        named = [{"field": "effects", "problem": what_of(x), "fix": "undo or leave"} for x in seen.to_undo[:20]]
        n = len(seen.to_undo)
        raise InvalidInput(
            f"{n} effect{'' if n == 1 else 's'} of this run can be undone: choose `undo` or `leave` (see GET …/undo).",
            errors=named,
        )
    return {"effects": effects}


def by_policy(run: Run) -> dict[str, Any]:
    """Return the agent's choice about effects, for a run that the system ends."""
    agent = _agent(run.graph_id)
    if run.state in ENDED or run.is_undoing or (agent is not None and agent.on_failure == LEAVE):
        return {}
    try:
        return {"effects": UNDO} if preview(run.pk, run.graph_id).is_needed else {}
    except JournalBroken:
        return {}


def said_at_end(run: Run) -> str | None:
    """Return the choice about a cancelled run's effects; None if none was needed."""
    if run.state != State.CANCELLED:
        return None
    try:
        event, _ = reader.end_of(run.pk, run.end_seq, str(run.state))
    except JournalBroken:
        return None
    effects = payload_of(event).get("effects")
    return effects if effects in CHOICES else None


def what_of(effect: Effect) -> str:
    named = f"{effect.tool} ({effect.external_id or effect.run or effect.slot})"
    return f"{named}: undone by {effect.by}" if effect.what == "undo" else f"{named}: {effect.why}"


MAX_KEPT = 64
# A read is repeated at the earliest after twenty times its duration: after two seconds if it took a tenth of a second.
RESTS = 20


@dataclass(frozen=True, slots=True)
class _CachedPreview:
    """A cached preview of a journal up to `seq`. The journal must not be read again before `until` (monotonic)."""

    family: frozenset[str]
    seq: int
    until: float
    seen: Preview | None


_kept: OrderedDict[UUID, _CachedPreview] = OrderedDict()
_lock = threading.Lock()


def effects_to_decide(run: Run) -> Preview | None:
    """Return the effects that a cancel must decide about.
    None if there are none, or they are unreadable."""
    seq, has_own, family = reader.to_undo(run.pk)
    if run.is_undoing or not (has_own or family):
        return None
    with _lock:
        kept = _kept.get(run.pk)
    if kept is None or kept.family != family:
        return _read(run, family, seq)
    seq, is_new = reader.tells_of_effects(run.pk, since=kept.seq)
    if not is_new:
        _keep(run.pk, replace(kept, seq=seq))
        return kept.seen
    return kept.seen if time.monotonic() < kept.until else _read(run, family, seq)


def _read(run: Run, family: frozenset[str], seq: int) -> Preview | None:
    begun = time.monotonic()
    try:
        seen = preview(run.pk, run.graph_id)
    except JournalBroken:
        seen = None
    now = time.monotonic()
    _keep(run.pk, _CachedPreview(family, seq, now + RESTS * (now - begun), seen))
    return seen


def _keep(run: UUID, kept: _CachedPreview) -> None:
    with _lock:
        _kept[run] = kept
        _kept.move_to_end(run)
        while len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)


def forget_all() -> None:
    with _lock:
        _kept.clear()
