# Adopts the tables from the app `runs`, where the models were before.

import django.db.models.deletion
from django.db import migrations, models

from ledger.migration_operations import AdoptModel, append_only_triggers


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('runs', '0003_protocol'),
    ]

    operations = [
        AdoptModel(
            name='VersionGate',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('agent', models.TextField()),
                ('version', models.TextField()),
                ('is_closed', models.BooleanField()),
                ('set_by', models.TextField()),
                ('set_at', models.DateTimeField()),
                ('why', models.TextField()),
            ],
            options={
                'db_table': 'runs_versiongate',
                'constraints': [models.UniqueConstraint(fields=('agent', 'version'), name='runs_versiongate_once')],
            },
        ),
        AdoptModel(
            name='Ramp',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('agent', models.TextField()),
                ('from_version', models.TextField()),
                ('to_version', models.TextField()),
                ('share', models.IntegerField(help_text='Number of starts out of 10,000 that go to the newer version.')),
                ('tags', models.JSONField(default=list, help_text='Tags whose starts go to the newer version too.')),
                ('bounds', models.JSONField(help_text='Percentages of failed, rejected and stopped runs above which it halts.')),
                ('least', models.IntegerField(help_text='Number of runs started on the newer version before the bounds apply.')),
                ('state', models.TextField(choices=[('on', 'On'), ('halted', 'Halted'), ('rolled_back', 'Rolled Back'), ('done', 'Done')], default='on')),
                ('revision', models.IntegerField(default=1, help_text='Increases with each change.')),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('counted_after', models.BigIntegerField(default=0, help_text='Only starts after this one count for the bounds.')),
                ('halted_at', models.DateTimeField(null=True)),
                ('halted_by', models.JSONField(help_text='The figures that halted the ramp.', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('counted_from', models.DateTimeField(help_text='Earlier starts count if their runs began after this time.', null=True)),
            ],
            options={
                'db_table': 'runs_ramp',
                'indexes': [models.Index(fields=['agent', '-id'], name='runs_ramp_of_agent')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('agent',), name='runs_ramp_one_of_agent'), models.CheckConstraint(condition=models.Q(('share__gte', 0), ('share__lte', 10000)), name='runs_ramp_share'), models.CheckConstraint(condition=models.Q(('from_version', models.F('to_version')), _negated=True), name='runs_ramp_goes_somewhere'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state__in', ['on', 'halted'])), models.Q(('ended_at__isnull', False), ('state__in', ['rolled_back', 'done'])), _connector='OR'), name='runs_ramp_ends_once')],
            },
        ),
        AdoptModel(
            name='RampStart',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(unique=True)),
                ('is_new', models.BooleanField(help_text='Whether it was assigned the newer version.')),
                ('why', models.TextField()),
                ('place', models.IntegerField(help_text="Place of the start's key among 10,000.")),
                ('at', models.DateTimeField()),
                ('ramp', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='starts', to='releases.ramp')),
            ],
            options={
                'db_table': 'runs_rampstart',
                'indexes': [models.Index(fields=['ramp', 'is_new', 'id'], name='runs_rampstart_of_ramp')],
                'triggers': append_only_triggers('releases.RampStart', 'runs_rampstart'),
            },
        ),
    ]
