"""A run's recorded past, read the way the engine reads it: for services that must know what a run is about."""

from __future__ import annotations

from ledger.events import decode, unseal
from ledger.models import Event
from runs.engine.tape import Tape
from runs.models import Checkpoint, Run


def tape_of(run: Run) -> Tape:
    """The slots of the run's current visit: everything since its newest checkpoint."""
    since = Checkpoint.objects.filter(run_id=run.id).order_by("-seq").values_list("seq", flat=True).first() or 0
    rows = Event.objects.filter(run_id=run.id, seq__gt=since).order_by("seq").values_list("clear", "sealed")
    return Tape(decode(clear, unseal(sealed)) for clear, sealed in rows)
