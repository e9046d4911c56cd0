"""One person has one vote in a case: see approvals/sql/0030_seats.sql."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0030_seats.sql")
UNDO = """
DROP TRIGGER approvals_take_seats ON approvals_decision;
DROP FUNCTION approvals_take_seats();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0020_policies'),
    ]

    operations = [
        migrations.CreateModel(
            name='Seat',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('case_id', models.UUIDField()),
                ('person', models.BigIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name='approval',
            name='case_id',
            field=models.UUIDField(help_text="The first stage's question, where several people decide; empty: one yes of one person.", null=True),
        ),
        migrations.AddField(
            model_name='decision',
            name='closes',
            field=models.BooleanField(db_default=True, default=True),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='case_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."case_id" IS DISTINCT FROM (NEW."case_id"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='c76318eb32cad058fb5c799a844c1b9c4701c000', operation='UPDATE', pgid='pgtrigger_case_is_frozen_5f1d4', table='approvals_approval', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='seat',
            name='decision',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='seats', to='approvals.decision'),
        ),
        migrations.AddConstraint(
            model_name='seat',
            constraint=models.UniqueConstraint(fields=('case_id', 'person'), name='approvals_seat_one_each'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='seat',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b93ba650ec5059eb0def30cc0378450160508803', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_afde0', table='approvals_seat', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='seat',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='18ead34cae478be13ba66472c34fb6f78d4ab160', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_139d0', table='approvals_seat', when='BEFORE')),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
