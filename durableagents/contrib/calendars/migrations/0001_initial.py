import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
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
            name='Calendar',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('version', models.IntegerField()),
                ('zone', models.TextField(help_text='By its IANA name.')),
                ('week', models.JSONField()),
                ('holidays', models.JSONField(default=list)),
                ('is_removed', models.BooleanField(default=False)),
                ('set_by', models.TextField()),
                ('set_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'approvals_calendar',
                'constraints': [models.UniqueConstraint(fields=('name', 'version'), name='approvals_calendar_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b986d91aa0b0f24d1b6ebccb46b1c0a1e1cc087f', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_26a40', table='approvals_calendar', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='73b5fed8ab1599355505a9fcfae8eaae249c49d4', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_a9d04', table='approvals_calendar', when='BEFORE'))],
            },
        ),
        AdoptModel(
            name='Timing',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('version', models.IntegerField()),
                ('calendar', models.TextField(blank=True, help_text='Empty: around the clock.')),
                ('on_timeout', models.TextField(blank=True, help_text='Empty: as the gate says, and a no where it says nothing.')),
                ('steps', models.JSONField(default=list)),
                ('remind', models.JSONField(default=list)),
                ('every', models.IntegerField(default=0)),
                ('at_once_if_away', models.BooleanField(default=False)),
                ('set_by', models.TextField()),
                ('set_at', models.DateTimeField()),
                ('queue', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='timings', to='approvals.queue')),
                ('clock_stops', models.IntegerField(db_default=0, default=0, help_text='For so many minutes at most, while someone named is asked.')),
            ],
            options={
                'db_table': 'approvals_timing',
                'constraints': [models.UniqueConstraint(fields=('queue', 'version'), name='approvals_timing_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='fb0a242d417244857b01434b3526579263b25be7', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_3caed', table='approvals_timing', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='3fa2b7e20d8c50ec30952d5cc5ffa1ce5ec0640f', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_f5216', table='approvals_timing', when='BEFORE'))],
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
