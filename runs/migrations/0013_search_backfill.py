"""What the runs of an older database are found by: see runs/search.py."""

from django.db import migrations

BATCH = 500


def backfill(apps, schema_editor):
    """Batch by batch, in the order of their ids. An input that can't be read gives no words; the run is found by the rest."""
    from ledger.events import unseal
    from runs import search

    runs, events = apps.get_model("runs", "Run"), apps.get_model("ledger", "Event")
    last = None
    while True:
        found = runs.objects.order_by("id") if last is None else runs.objects.order_by("id").filter(id__gt=last)
        batch = list(found.values_list("id", "created_by", "tags")[:BATCH])
        if not batch:
            return
        last = batch[-1][0]
        first = events.objects.filter(run_id__in=[id for id, _, _ in batch], seq=1).values_list("run_id", "sealed")
        inputs = {run_id: _read(unseal, sealed) for run_id, sealed in first}
        search.backfill((id, by, tags, inputs.get(id)) for id, by, tags in batch)


def _read(unseal, sealed):
    try:
        return unseal(sealed)
    except ValueError:
        return None


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_lists"), ("ledger", "0002_sql")]
    operations = [migrations.RunPython(backfill, migrations.RunPython.noop, elidable=True)]
