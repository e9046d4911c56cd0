"""The feature of this app: a job that collects orphans, and a note on the page of a run whose state is large."""

from __future__ import annotations

from typing import Any

from django.db.models import BinaryField
from django.db.models.functions import Length, Substr

from durableagents.contrib.large_values import collecting, stores
from ledger.codec import size_of
from runs.background import Duty
from runs.engine.continuation import LARGE_STATE
from runs.features import Feature
from runs.models import Checkpoint, Run


def feature(store: stores.Folder | stores.DjangoStorage) -> Feature:
    """Return the feature, using the store that the settings name."""
    return Feature(
        name="large values",
        periodic=(Duty("large values: orphans", collecting.IS_DUE, collecting.collect_when_due),),
        run_panels=(large_state,),
    )


def large_state(run: Run, *_: Any) -> tuple[str, int] | None:
    """Return a note with the size of the run's newest state, from its first bytes; None if it isn't large."""
    head = Substr("state", 1, 20, output_field=BinaryField())
    rows = Checkpoint.objects.filter(run_id=run.pk).order_by("-seq")
    row = rows.annotate(head=head, stored=Length("state")).values_list("head", "stored").first()
    if row is None or (size := size_of(bytes(row[0]), row[1])) < LARGE_STATE:
        return None
    return "large_values/large_state.html", size
