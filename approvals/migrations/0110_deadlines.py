"""Calendars, what queues say of time, where questions went when nobody answered, and who is away."""

import django.contrib.postgres.fields
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0101_policy_proofs'),
        ('runs', '0110_also'),
    ]

    operations = [
        migrations.CreateModel(
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
            ],
        ),
        migrations.CreateModel(
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
        ),
        migrations.CreateModel(
            name='Escalation',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.SmallIntegerField()),
                ('run_id', models.UUIDField()),
                ('queue', models.TextField()),
                ('cause', models.TextField(help_text='timeout, or away: everybody who decides there was.')),
                ('deadline', models.DateTimeField()),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
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
            ],
        ),
        migrations.AddField(
            model_name='approval',
            name='escalated_to',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Queues that it was put to besides.', null=True, size=None),
        ),
        migrations.AddField(
            model_name='approval',
            name='look_at',
            field=models.DateTimeField(help_text='When the sweeper looks at it before its deadline.', null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='reminded',
            field=models.SmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='approval',
            name='reminded_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='timing',
            field=models.JSONField(help_text='The terms: by which calendar, what then, when people are reminded.', null=True),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='terms_are_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."timing" IS DISTINCT FROM (NEW."timing"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='19fa950cbe7658e8865608ec113d6a10ce0be085', operation='UPDATE', pgid='pgtrigger_terms_are_frozen_e74fc', table='approvals_approval', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='absence',
            index=models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['person', 'ends_at'], name='approvals_absence_of'),
        ),
        migrations.AddConstraint(
            model_name='absence',
            constraint=models.UniqueConstraint(fields=('person', 'made_at'), name='approvals_absence_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='absence',
            trigger=pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='a82d28ab581c521da445e6da9263ecfa3e134817', operation='UPDATE', pgid='pgtrigger_stays_ended_72010', table='approvals_absence', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='calendar',
            constraint=models.UniqueConstraint(fields=('name', 'version'), name='approvals_calendar_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='calendar',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b6019bdb6e62c0684c78419902c1185f83f52f96', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_adbd7', table='approvals_calendar', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='calendar',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='b0d55cb9653d092dcb1366f4120d6d013b02a1dc', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_74485', table='approvals_calendar', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='escalation',
            name='approval',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='escalations', to='approvals.approval'),
        ),
        migrations.AddField(
            model_name='timing',
            name='queue',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='timings', to='approvals.queue'),
        ),
        migrations.AddIndex(
            model_name='escalation',
            index=models.Index(fields=['run_id'], name='approvals_escalated_of_run'),
        ),
        migrations.AddConstraint(
            model_name='escalation',
            constraint=models.UniqueConstraint(fields=('approval', 'n'), name='approvals_escalated_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='escalation',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='60151240a0264e61d775fab4d0e83d23b6ea9995', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_e283b', table='approvals_escalation', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='escalation',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='6938a9592f17c8fcfbd2dad4c6d0054e5235c19c', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_82bb9', table='approvals_escalation', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='timing',
            constraint=models.UniqueConstraint(fields=('queue', 'version'), name='approvals_timing_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='timing',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='a589af19fc2a7a6829a6283a4b60a734769b34cc', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_c99e0', table='approvals_timing', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='timing',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='e71b60a0818160bf674ba3b53a5bbb9570cd7fc2', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_9fe08', table='approvals_timing', when='BEFORE')),
        ),
    ]
