"""By what a ramp is judged, and which versions are only drained: see runs/sql/0049_judged.sql."""

import django.db.models.functions.comparison
from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0049_judged.sql")
UNDO = as_before(__file__, "0014_starts.sql", "runs_drivable")


class Migration(migrations.Migration):
    dependencies = [("runs", "0047_reopened")]
    operations = [
        migrations.AddField(
            model_name="ramp", name="counted_from",
            field=models.DateTimeField(help_text="And those before it that were begun after this time.", null=True),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(models.F("graph_id"), models.OrderBy(django.db.models.functions.comparison.Coalesce("ended_at", "started_at"), descending=True), condition=models.Q(("started_at__isnull", False)), name="runs_run_judged"),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
