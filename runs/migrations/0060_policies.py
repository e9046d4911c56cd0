"""Which policies are in force, and the intents that are held to it: runs/sql/0060_policies.sql."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0060_policies.sql")
UNDO = "\n".join(
    (
        as_before(__file__, "0026_pools.sql", "runs_intend"),
        "DROP FUNCTION runs_check_policies(ledger_line[]);",
        "DROP FUNCTION runs_policies_alone();",
    )
)


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0056_tags_again'),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyRevision',
            fields=[
                ('revision', models.BigIntegerField(primary_key=True, serialize=False)),
                ('live', models.IntegerField()),
                ('policies', models.TextField()),
                ('set_by', models.TextField()),
                ('at', models.DateTimeField()),
                ('code', models.BinaryField(help_text="Who wrote it had the installation's key: see ledger/codes.py.", null=True)),
            ],
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='policyrevision',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='6722f2117e97231d667c1174dee8607d64f5b908', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_9c297', table='runs_policyrevision', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='policyrevision',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='cc9aa447738c34c40617bba5a8d5a26581835223', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_eac1d', table='runs_policyrevision', when='BEFORE')),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
