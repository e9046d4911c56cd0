"""Which version a start gets: see runs/sql/0038_releases.sql."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0038_releases.sql")
UNDO = "DROP FUNCTION runs_release_alone(text); DROP FUNCTION runs_release(text, double precision);"


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0036_agent_code'),
    ]

    operations = [
        migrations.CreateModel(
            name='Ramp',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('agent', models.TextField()),
                ('from_version', models.TextField()),
                ('to_version', models.TextField()),
                ('share', models.IntegerField(help_text='How many of 10,000 starts go to the newer version.')),
                ('tags', models.JSONField(default=list, help_text='Starts with one of these go there, whatever the share.')),
                ('bounds', models.JSONField(help_text='Above which per cent of its runs it halts: failed, rejected, stopped.')),
                ('least', models.IntegerField(help_text='Not before so many runs were begun on the newer version.')),
                ('state', models.TextField(choices=[('on', 'On'), ('halted', 'Halted'), ('rolled_back', 'Rolled Back'), ('done', 'Done')], default='on')),
                ('revision', models.IntegerField(default=1, help_text='Goes up with each change.')),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('counted_after', models.BigIntegerField(default=0, help_text='Only starts after this one count towards the bounds.')),
                ('halted_at', models.DateTimeField(null=True)),
                ('halted_by', models.JSONField(help_text='The figures that halted it.', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='RampStart',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(unique=True)),
                ('is_new', models.BooleanField(help_text='It was given the newer version.')),
                ('why', models.TextField()),
                ('place', models.IntegerField(help_text='Where its key stands among 10,000.')),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
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
        ),
        migrations.AddField(
            model_name='served',
            name='is_draining',
            field=models.BooleanField(db_default=False, default=False, help_text='It drives runs of it that were begun, and begins none.'),
        ),
        migrations.AddIndex(
            model_name='ramp',
            index=models.Index(fields=['agent', '-id'], name='runs_ramp_of_agent'),
        ),
        migrations.AddConstraint(
            model_name='ramp',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('agent',), name='runs_ramp_one_of_agent'),
        ),
        migrations.AddConstraint(
            model_name='ramp',
            constraint=models.CheckConstraint(condition=models.Q(('share__gte', 0), ('share__lte', 10000)), name='runs_ramp_share'),
        ),
        migrations.AddConstraint(
            model_name='ramp',
            constraint=models.CheckConstraint(condition=models.Q(('from_version', models.F('to_version')), _negated=True), name='runs_ramp_goes_somewhere'),
        ),
        migrations.AddConstraint(
            model_name='ramp',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state__in', ['on', 'halted'])), models.Q(('ended_at__isnull', False), ('state__in', ['rolled_back', 'done'])), _connector='OR'), name='runs_ramp_ends_once'),
        ),
        migrations.AddField(
            model_name='rampstart',
            name='ramp',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='starts', to='runs.ramp'),
        ),
        migrations.AddConstraint(
            model_name='versiongate',
            constraint=models.UniqueConstraint(fields=('agent', 'version'), name='runs_versiongate_once'),
        ),
        migrations.AddIndex(
            model_name='rampstart',
            index=models.Index(fields=['ramp', 'is_new', 'id'], name='runs_rampstart_of_ramp'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='rampstart',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='2d15ea37f27ec73167052a9d3027a52bc25ba993', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_e9989', table='runs_rampstart', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='rampstart',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='fd26f948bfd531e1933d16d02ef258c6d512c28c', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_983dc', table='runs_rampstart', when='BEFORE')),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
