"""Handing signals to whoever waits for them: see runs/sql/signals.sql."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).resolve().parent.parent / "sql" / "signals.sql").read_text()
UNDO = "DROP FUNCTION runs_hand_over(uuid, text);"


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_sql")]
    operations = [migrations.RunSQL(SQL, UNDO)]
