"""The ready queue by version, and when the busy tables are vacuumed.

The server's defaults wait for a fifth of a table to be dead or new, which for tables of many millions of rows is days of work at once.
Runs are updated some four times each and keep room for it on their pages; what is only ever added to is frozen as it grows.
"""

from django.db import migrations, models

STORAGE = {
    "ledger_head": "autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05",
    "runs_run": "fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05",
    "runs_wait": "fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05",
    "runs_process": "fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500",
    "ledger_event": "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02",
    "ledger_ledgerentry": "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02",
    "runs_checkpoint": "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02",
}
SET = "\n".join(f"ALTER TABLE {table} SET ({said});" for table, said in STORAGE.items())
RESET = "\n".join(
    f"ALTER TABLE {table} RESET ({', '.join(each.split(' = ')[0] for each in said.split(', '))});" for table, said in STORAGE.items()
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0007_claims"), ("ledger", "0002_sql")]
    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["graph_id", "is_solo", "-priority", "ready_at"],
                condition=models.Q(("ready_at__isnull", False)), name="runs_run_wanted",
            ),
        ),
        migrations.RemoveIndex(model_name="run", name="runs_run_ready"),
        migrations.RunSQL(SET, RESET),
    ]
