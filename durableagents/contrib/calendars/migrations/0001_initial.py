import django.db.models.deletion
import pgtrigger.compiler
from django.db import migrations, models

from ledger.migration_operations import AdoptModel, append_only_triggers


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('approvals', '0002_encrypted_content'),
    ]

    operations = [
        AdoptModel(
            name='Calendar',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('version', models.IntegerField()),
                ('zone', models.TextField(help_text='IANA name of the time zone.')),
                ('week', models.JSONField()),
                ('holidays', models.JSONField(default=list)),
                ('is_removed', models.BooleanField(default=False)),
                ('set_by', models.TextField()),
                ('set_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'approvals_calendar',
                'constraints': [models.UniqueConstraint(fields=('name', 'version'), name='approvals_calendar_once')],
                'triggers': append_only_triggers('calendars.Calendar', 'approvals_calendar'),
            },
        ),
        AdoptModel(
            name='Timing',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('version', models.IntegerField()),
                ('calendar', models.TextField(blank=True, help_text='Empty: around the clock.')),
                ('on_timeout', models.TextField(blank=True, help_text='Empty: as the gate specifies, or else reject.')),
                ('steps', models.JSONField(default=list)),
                ('remind', models.JSONField(default=list)),
                ('every', models.IntegerField(default=0)),
                ('at_once_if_away', models.BooleanField(default=False)),
                ('set_by', models.TextField()),
                ('set_at', models.DateTimeField()),
                ('queue', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='timings', to='approvals.queue')),
                ('clock_stops', models.IntegerField(db_default=0, default=0, help_text='Longest pause of the deadline in minutes, while an inquiry is open.')),
            ],
            options={
                'db_table': 'approvals_timing',
                'constraints': [models.UniqueConstraint(fields=('queue', 'version'), name='approvals_timing_once')],
                'triggers': append_only_triggers('calendars.Timing', 'approvals_timing'),
            },
        ),
        AdoptModel(
            name='Absence',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('person', models.BigIntegerField(help_text='The account.')),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('reason', models.TextField()),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
                ('deputy', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='absences', to='approvals.deputy')),
            ],
            options={
                'db_table': 'approvals_absence',
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['person', 'ends_at'], name='approvals_absence_of')],
                'constraints': [models.UniqueConstraint(fields=('person', 'made_at'), name='approvals_absence_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='4960253fb3c8ad8e553f921258874152f72406ae', operation='UPDATE', pgid='pgtrigger_stays_ended_ab708', table='approvals_absence', when='BEFORE'))],
            },
        ),
    ]
