"""Records of acts carry a code too. Those that there are stay without: how far, each run's row in `ledger_uncoded` says."""

from django.db import migrations, models

# Events get no latitude by it: their own mark stays, or begins at nothing.
MARK = """
INSERT INTO ledger_uncoded (run_id, seq, acts)
SELECT run_id, 0, max(seq) FROM ledger_actrecord WHERE run_id IS NOT NULL AND seq IS NOT NULL GROUP BY run_id
ON CONFLICT (run_id) DO UPDATE SET acts = excluded.acts
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0006_lists")]
    operations = [
        migrations.AddField("actrecord", "code", models.BinaryField(null=True)),
        migrations.AddField(
            "uncoded",
            "acts",
            models.BigIntegerField(
                default=0, db_default=0, help_text="Up to which event records of acts may: those had codes later than events."
            ),
        ),
        migrations.RunSQL(MARK, "DELETE FROM ledger_uncoded WHERE seq = 0"),
    ]
