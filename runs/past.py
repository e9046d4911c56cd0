"""A run's recorded past, read the way the engine reads it: for services that must know what a run is about."""

from __future__ import annotations

from django.db.models import Q

from ledger.models import Event, Head
from runs.engine.tape import Tape
from runs.history import COLUMNS, read
from runs.models import Checkpoint, Run


def tape_of(run: Run) -> Tape:
    """The slots of the run's current visit: everything since its newest checkpoint. Raises JournalBroken, as a claimant would."""
    since = Checkpoint.objects.filter(run_id=run.id).order_by("-seq").values_list("seq", flat=True).first() or 0
    wanted = Q(seq=1) | Q(seq__gte=since)
    rows = Event.objects.filter(wanted, run_id=run.id).order_by("seq").values_list(*COLUMNS)
    last = Head.objects.values_list("seq", flat=True).get(pk=run.id)
    _, tail = read(str(run.id), list(rows), since, at_least=last)
    return Tape(tail)
