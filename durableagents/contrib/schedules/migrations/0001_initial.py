# Adopts the tables from the app `runs`, where the models were before.

import uuid

import django.db.models.deletion
from django.db import migrations, models

from ledger.migration_operations import AdoptModel, append_only_triggers


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('django_q', '0001_initial'),
        ('runs', '0003_protocol'),
    ]

    operations = [
        AdoptModel(
            name='Schedule',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('agent', models.TextField(help_text='A name (its newest version), or name@version.')),
                ('input', models.JSONField()),
                ('tags', models.JSONField(default=list)),
                ('budget', models.JSONField(null=True)),
                ('most', models.JSONField(help_text='The budget limit of the API key that set it; null if there is no limit.', null=True)),
                ('cron', models.TextField()),
                ('zone', models.TextField(default='UTC')),
                ('missed', models.TextField(choices=[('skip', 'Skip'), ('once', 'Once'), ('all', 'All')], default='skip')),
                ('overlap', models.TextField(choices=[('skip', 'Skip'), ('queue', 'Queue'), ('replace', 'Replace'), ('allow', 'Allow')], default='skip')),
                ('owner', models.BigIntegerField(help_text='The account whose rights its runs start with.')),
                ('set_by', models.TextField()),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('next_at', models.DateTimeField(help_text='The planned time that is due or comes next. Null: none.', null=True)),
                ('is_paused', models.BooleanField(default=False)),
                ('stopped', models.TextField(blank=True, default='', help_text='Reason why the schedule no longer starts runs.')),
                ('trouble', models.TextField(blank=True, default='', help_text='Reason why a due run has not started yet.')),
                ('deleted_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'runs_schedule',
                'indexes': [models.Index(condition=models.Q(('next_at__isnull', False)), fields=['next_at'], name='runs_schedule_due'), models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['-created_at', '-id'], name='runs_schedule_by_time')],
                'constraints': [models.CheckConstraint(condition=models.Q(('next_at__isnull', True), models.Q(('deleted_at__isnull', True), ('is_paused', False), ('stopped', '')), _connector='OR'), name='runs_schedule_rests')],
            },
        ),
        AdoptModel(
            name='Firing',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('planned_at', models.DateTimeField()),
                ('at', models.DateTimeField()),
                ('outcome', models.TextField(choices=[('started', 'Started'), ('skipped', 'Skipped'), ('missed', 'Missed'), ('refused', 'Refused')])),
                ('run_id', models.UUIDField(help_text='The run that it started, or the active run that prevented a start.', null=True)),
                ('why', models.TextField(blank=True, default='')),
                ('n', models.IntegerField(default=1, help_text='If missed: the number of planned times up to this one.')),
                ('schedule', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='firings', to='schedules.schedule')),
            ],
            options={
                'db_table': 'runs_firing',
                'constraints': [models.UniqueConstraint(fields=('schedule', 'planned_at'), name='runs_firing_once')],
                'triggers': append_only_triggers('schedules.Firing', 'runs_firing'),
            },
        ),
        # Timers of former versions, which nothing reads any more.
        migrations.RunSQL(
            "DELETE FROM django_q_schedule WHERE func = 'runs.workers.worker_process.fire'", migrations.RunSQL.noop
        ),
    ]
