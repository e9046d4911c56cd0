"""What a named person was asked about a case, and to whom one was handed; and how long a clock stands for that."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0130_claims'),
    ]

    operations = [
        migrations.AddField(
            model_name='timing',
            name='clock_stops',
            field=models.IntegerField(db_default=0, default=0, help_text='For so many minutes at most, while somebody named is asked.'),
        ),
        migrations.CreateModel(
            name='Inquiry',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('n', models.IntegerField()),
                ('asker', models.BigIntegerField(help_text='The account that asks.')),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('person', models.BigIntegerField(help_text='The account that is asked.')),
                ('to', models.TextField(help_text='Its name then.')),
                ('question', models.TextField()),
                ('stops_clock', models.BooleanField(default=False)),
                ('at', models.DateTimeField()),
                ('outcome', models.TextField(blank=True, default='', help_text='answered, withdrawn; empty: it waits.')),
                ('answer', models.TextField(blank=True, default='')),
                ('ended_by', models.TextField(blank=True, default='')),
                ('ended_at', models.DateTimeField(null=True)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='inquiries', to='approvals.approval')),
            ],
            options={
                'verbose_name_plural': 'inquiries',
            },
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('n', models.IntegerField()),
                ('principal', models.BigIntegerField(help_text='The account in whose place.')),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('deputy', models.BigIntegerField(help_text='The account that decides.')),
                ('to', models.TextField(help_text='Its name then.')),
                ('reason', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='delegations', to='approvals.approval')),
            ],
            options={
                'indexes': [models.Index(fields=['run_id'], name='approvals_delegation_of_run'), models.Index(fields=['deputy', '-made_at'], name='approvals_delegation_to')],
                'constraints': [models.UniqueConstraint(fields=('approval', 'n'), name='approvals_delegation_once'), models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('approval', 'principal', 'deputy'), name='approvals_delegation_one_of_two')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='delegation',
            trigger=pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b83f08e71910e22d9bf414098f200ff203170367', operation='UPDATE', pgid='pgtrigger_stays_ended_beb8a', table='approvals_delegation', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='inquiry',
            index=models.Index(fields=['run_id'], name='approvals_inquiry_of_run'),
        ),
        migrations.AddIndex(
            model_name='inquiry',
            index=models.Index(fields=['person', '-at'], name='approvals_inquiry_to'),
        ),
        migrations.AddConstraint(
            model_name='inquiry',
            constraint=models.UniqueConstraint(fields=('approval', 'n'), name='approvals_inquiry_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='inquiry',
            trigger=pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b278cb834e5d3da34beea72a61624178025eb939', operation='UPDATE', pgid='pgtrigger_stays_ended_51eb7', table='approvals_inquiry', when='BEFORE')),
        ),
    ]
