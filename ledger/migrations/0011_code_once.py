"""No code stands twice: whoever has the application's rights can't put a genuine record among the others once more.

Copies that are there already must not stand in an upgrade's way. Verification names them; until they are gone the table goes without.
"""

from django.db import migrations, models

TABLES = {"actrecord": "ledger_act_code_once", "overriderecord": "ledger_override_code_once"}


def adding(model: str, name: str) -> str:
    return f"""
DO $$ BEGIN
    ALTER TABLE ledger_{model} ADD CONSTRAINT {name} UNIQUE (code);
EXCEPTION WHEN unique_violation THEN
    RAISE WARNING 'some records of ledger_{model} are copies of others: manage.py ledger verify --all names them';
END $$;
"""


def _once(model: str, name: str) -> migrations.SeparateDatabaseAndState:
    return migrations.SeparateDatabaseAndState(
        [migrations.RunSQL(adding(model, name), f"ALTER TABLE ledger_{model} DROP CONSTRAINT IF EXISTS {name}")],
        [migrations.AddConstraint(model, models.UniqueConstraint(fields=("code",), name=name))],
    )


class Migration(migrations.Migration):
    dependencies = [("ledger", "0010_registers")]
    operations = [_once(model, name) for model, name in TABLES.items()]
