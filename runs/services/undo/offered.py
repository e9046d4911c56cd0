"""What a page shows beside its cancel, at each refresh: read anew only where the journal tells something new of
effects, and then for a small part of the time that passes, however long the run is.

Nobody decides by what is kept: a cancel reads for itself.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from uuid import UUID

from runs.engine.errors import JournalBroken
from runs.journal import reader
from runs.models import Run
from runs.services.undo.preview import Preview, preview

MOST_KEPT = 64
# A reading that took a tenth of a second is made again after two at the earliest.
RESTS = 20


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read, of a journal up to `seq`; not to be read again before `until`, by the monotonic clock."""

    family: frozenset[str]
    seq: int
    until: float
    seen: Preview | None


_kept: OrderedDict[UUID, _Kept] = OrderedDict()
_lock = threading.Lock()


def offered(run: Run) -> Preview | None:
    """What a cancel would have to say something about; None where there is nothing, or nobody can read it."""
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
    _keep(run.pk, _Kept(family, seq, now + RESTS * (now - begun), seen))
    return seen


def _keep(run: UUID, kept: _Kept) -> None:
    with _lock:
        _kept[run] = kept
        _kept.move_to_end(run)
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)


def forget_all() -> None:
    """Keep nothing any more."""
    with _lock:
        _kept.clear()
