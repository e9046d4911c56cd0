"""Who is on a case, and the reasons that a queue offers: see approvals/sql/0130_claims.sql."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0130_claims.sql")
UNDO = """
DROP TRIGGER approvals_end_own_claims ON approvals_seat;
DROP FUNCTION approvals_end_own_claims();
DROP TRIGGER approvals_end_claims ON approvals_approval;
DROP FUNCTION approvals_end_claims();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0125_absence_deputy'),
    ]

    operations = [
        migrations.AddField(
            model_name='queue',
            name='reasons',
            field=models.JSONField(help_text='Short reasons that are offered to whoever decides; empty: none.', null=True),
        ),
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('person', models.BigIntegerField(help_text='The account.')),
                ('by', models.TextField(help_text='As it was called then.')),
                ('role', models.TextField()),
                ('at', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
                ('why', models.TextField(blank=True, default='', help_text='How it ended.')),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='claims', to='approvals.approval')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['person'], name='approvals_claim_of')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('approval', 'person'), name='approvals_claim_one_each')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='claim',
            trigger=pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='7022dc99e1ccd083d228b816be83a7dab0f3a288', operation='UPDATE', pgid='pgtrigger_stays_ended_17f65', table='approvals_claim', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='claim',
            trigger=pgtrigger.compiler.Trigger(name='claim_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."approval_id" IS DISTINCT FROM (NEW."approval_id") OR OLD."person" IS DISTINCT FROM (NEW."person") OR OLD."by" IS DISTINCT FROM (NEW."by") OR OLD."role" IS DISTINCT FROM (NEW."role") OR OLD."at" IS DISTINCT FROM (NEW."at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='8ae3d773a638a7523de3472dea087a30fcb3ec34', operation='UPDATE', pgid='pgtrigger_claim_is_frozen_6ab0c', table='approvals_claim', when='BEFORE')),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
