import django.db.models.functions.text
import pgtrigger.compiler
from django.db import migrations, models

from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('approvals', '0002_encrypted_content'),
    ]

    operations = [
        AdoptModel(
            name='Policy',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('version', models.IntegerField()),
                ('agent', models.TextField(blank=True, default='')),
                ('tool', models.TextField(blank=True, default='')),
                ('condition', models.TextField(blank=True, default='')),
                ('kinds', models.JSONField(default=dict)),
                ('effect', models.TextField(choices=[('allow', 'Allow'), ('require', 'Require'), ('deny', 'Deny')])),
                ('queue', models.TextField(blank=True, default='')),
                ('within_seconds', models.IntegerField(default=0)),
                ('rule', models.TextField(help_text='Explanation for people and agents.')),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
                ('proof', models.JSONField(help_text="Proof required to approve; empty: the queue's requirement.", null=True)),
            ],
            options={
                'db_table': 'approvals_policy',
                'constraints': [models.UniqueConstraint(django.db.models.functions.text.Lower('name'), condition=models.Q(('ended_at__isnull', True)), name='approvals_policy_one_in_force'), models.UniqueConstraint(django.db.models.functions.text.Lower('name'), models.F('version'), name='approvals_policy_version_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='e8b985f0240a02b0662daab95e843dca93bfacdd', operation='UPDATE', pgid='pgtrigger_stays_ended_8fa35', table='approvals_policy', when='BEFORE')), pgtrigger.compiler.Trigger(name='stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='712c5b1262d0aed9930cf1910a64b82568e01eff', operation='DELETE', pgid='pgtrigger_stays_a0245', table='approvals_policy', when='BEFORE'))],
            },
        ),
    ]
