"""What a head counts never falls below nothing: a claim of one that says otherwise is refused by name, and its run stops for an operator.

Rows that are damaged already must not stand in an upgrade's way: the constraint holds for whatever is written from here on, and is
taken for true of the rest only where it is.
"""

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

VALIDATE = """
DO $$ BEGIN
    ALTER TABLE ledger_head VALIDATE CONSTRAINT ledger_head_in_range;
EXCEPTION WHEN check_violation THEN
    RAISE WARNING 'some heads of runs are out of range: manage.py ledger verify --all names them';
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0007_act_code")]
    operations = [
        AddConstraintNotValid(
            model_name="head",
            constraint=models.CheckConstraint(
                condition=models.Q(("claimed_seq__gte", 0), ("deaths__gte", 0), ("epoch__gte", 0), ("seq__gte", 0)), name="ledger_head_in_range"
            ),
        ),
        migrations.RunSQL(VALIDATE, migrations.RunSQL.noop),
    ]
