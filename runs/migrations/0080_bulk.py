"""Acts on many runs: who asked for what, on which runs, and what became of each."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0073_starts_under_halts'),
    ]

    operations = [
        migrations.CreateModel(
            name='Batch',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('action', models.TextField()),
                ('said', models.JSONField(default=dict, help_text='What the act says besides its reason: effects, priority.')),
                ('justification', models.TextField()),
                ('chosen', models.JSONField(help_text='How the runs were chosen: the filter, or that they were named.')),
                ('total', models.IntegerField()),
                ('digest', models.TextField(help_text='SHA-256 of the ids of its runs, in their order.')),
                ('forecast', models.JSONField(default=dict, help_text='What would become of them, as of when it was made.')),
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
            ],
            options={
                'indexes': [models.Index(fields=['-made_at', '-id'], name='runs_batch_newest'), models.Index(fields=['person', '-made_at', '-id'], name='runs_batch_of_person'), models.Index(condition=models.Q(('ended_at__isnull', True), ('started_at__isnull', False)), fields=['started_at'], name='runs_batch_under_way')],
            },
        ),
        migrations.CreateModel(
            name='BatchItem',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.IntegerField()),
                ('run_id', models.UUIDField(help_text="Of one that there isn't, or that nobody may see, it says so.")),
                ('outcome', models.TextField(blank=True, choices=[('done', 'Done'), ('refused', 'Refused'), ('failed', 'Failed')], db_default='', default='')),
                ('code', models.TextField(blank=True, db_default='', default='')),
                ('why', models.TextField(blank=True, db_default='', default='')),
                ('tries', models.SmallIntegerField(db_default=0, default=0, help_text="How often the database didn't let it be done.")),
                ('at', models.DateTimeField(null=True)),
                ('batch', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='items', to='runs.batch')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('outcome', '')), fields=['batch', 'n'], name='runs_batchitem_left'), models.Index(fields=['batch', 'outcome', 'n'], name='runs_batchitem_by_outcome'), models.Index(fields=['run_id'], name='runs_batchitem_of_run')],
                'constraints': [models.UniqueConstraint(fields=('batch', 'run_id'), name='runs_batchitem_once'), models.UniqueConstraint(fields=('batch', 'n'), name='runs_batchitem_place')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='batchitem',
            trigger=pgtrigger.compiler.Trigger(name='comes_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (OLD."outcome" = \'\'))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='8c2ace0e2496c1a78e8616b392c00b372fd2b157', operation='UPDATE', pgid='pgtrigger_comes_once_7caf0', table='runs_batchitem', when='BEFORE')),
        ),
    ]
