# Adopts the tables from the app `runs`, where the models were before.

import django.db.models.deletion
import pgtrigger.compiler
from django.db import migrations, models

from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('runs', '0003_protocol'),
    ]

    operations = [
        AdoptModel(
            name='Batch',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('action', models.TextField()),
                ('said', models.JSONField(default=dict, help_text='Parameters of the operation; the digest of a receipt.')),
                ('justification', models.TextField()),
                ('chosen', models.JSONField(help_text='The filter that selected the runs, or a note that they were named.')),
                ('total', models.IntegerField()),
                ('digest', models.TextField(help_text='SHA-256 of the ids of its runs, in batch order.')),
                ('forecast', models.JSONField(default=dict, help_text='Forecast at creation.')),
                ('by', models.TextField()),
                ('person', models.BigIntegerField(null=True)),
                ('auth', models.TextField(blank=True)),
                ('address', models.TextField(blank=True)),
                ('made_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(null=True)),
                ('stopped_at', models.DateTimeField(null=True)),
                ('stopped_by', models.TextField(blank=True, default='')),
                ('ended_at', models.DateTimeField(null=True)),
                ('code', models.BinaryField(null=True)),
                ('receipt', models.JSONField(help_text='Result of the calls that happened; kept until the batch has ended.', null=True)),
            ],
            options={
                'db_table': 'runs_batch',
                'indexes': [models.Index(fields=['-made_at', '-id'], name='runs_batch_newest'), models.Index(fields=['person', '-made_at', '-id'], name='runs_batch_of_person'), models.Index(condition=models.Q(('ended_at__isnull', True), ('started_at__isnull', False)), fields=['started_at'], name='runs_batch_under_way')],
                'triggers': [pgtrigger.compiler.Trigger(name='is_over_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='49fd7782471cee5f9157d37f37d133f44b9c9bbc', operation='UPDATE', pgid='pgtrigger_is_over_once_dce78', table='runs_batch', when='BEFORE'))],
            },
        ),
        AdoptModel(
            name='BatchItem',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.IntegerField()),
                ('run_id', models.UUIDField(help_text='Set even if the run does not exist or the requester may not see it.')),
                ('outcome', models.TextField(blank=True, choices=[('done', 'Done'), ('refused', 'Refused'), ('failed', 'Failed')], db_default='', default='')),
                ('code', models.TextField(blank=True, db_default='', default='')),
                ('why', models.TextField(blank=True, db_default='', default='')),
                ('tries', models.SmallIntegerField(db_default=0, default=0, help_text='Number of failures caused by the database or this application.')),
                ('at', models.DateTimeField(null=True)),
                ('batch', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='items', to='bulk.batch')),
                ('wait_id', models.UUIDField(help_text="For reconcile: the run's only unknown outcome when the batch was created.", null=True)),
            ],
            options={
                'db_table': 'runs_batchitem',
                'indexes': [models.Index(condition=models.Q(('outcome', '')), fields=['batch', 'n'], name='runs_batchitem_left'), models.Index(fields=['batch', 'outcome', 'n'], name='runs_batchitem_by_outcome'), models.Index(fields=['run_id'], name='runs_batchitem_of_run')],
                'constraints': [models.UniqueConstraint(fields=('batch', 'run_id'), name='runs_batchitem_once'), models.UniqueConstraint(fields=('batch', 'n'), name='runs_batchitem_place')],
                'triggers': [pgtrigger.compiler.Trigger(name='comes_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (OLD."outcome" = \'\'))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='349d68735357b215ac71bcb6d4b4df9dd717dc45', operation='UPDATE', pgid='pgtrigger_comes_once_de12f', table='runs_batchitem', when='BEFORE'))],
            },
        ),
    ]
