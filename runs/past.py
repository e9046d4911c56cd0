"""A run's recorded past, read the way the engine reads it: for services that must know what a run is about."""

from __future__ import annotations

from django.db import connection

from ledger.models import Head
from runs.engine.tape import Tape
from runs.history import EVENTS, Cut, read
from runs.models import Checkpoint, Run


def tape_of(run: Run) -> Tape:
    """The slots of the run's current visit: everything since its newest checkpoint. Raises JournalBroken, as a claimant would."""
    since = Checkpoint.objects.filter(run_id=run.id).order_by("-seq").values_list("seq", flat=True).first() or 0
    with connection.cursor() as cursor:
        cursor.execute(EVENTS, [run.id, since])
        rows = cursor.fetchall()
    last = Head.objects.values_list("seq", flat=True).get(pk=run.id)
    _, tail = read(run.id, rows, Cut(since), at_least=last, graph_id=run.graph_id)
    return Tape(tail)
