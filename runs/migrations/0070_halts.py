"""Halts, their record and what holds of it: see runs/sql/0070_halts.sql."""

import django.contrib.postgres.fields
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0070_halts.sql")
UNDO = """
DROP TRIGGER runs_keep_halt ON runs_halt;
DROP FUNCTION runs_let_go(bigint, int);
DROP FUNCTION runs_set_aside(uuid, bigint, uuid, text[], ledger_line[]);
DROP FUNCTION runs_put_aside(uuid, runs_haltnow, text[]);
DROP FUNCTION runs_halts_alone();
DROP FUNCTION runs_halted_by(uuid, text[]);
DROP FUNCTION runs_check_halts(uuid, ledger_line[]);
DROP FUNCTION runs_called_by(ledger_line[]);
DROP FUNCTION runs_is_halted_whole(text);
DROP FUNCTION runs_halt_on(uuid, text, text, boolean, text[]);
DROP FUNCTION runs_halts_on(uuid, text, text, boolean, text[]);
DROP FUNCTION runs_is_of_scope(text, text, uuid, text, text, text[]);
DROP FUNCTION runs_is_let_through(uuid, int, text[], text[], uuid, text);
DROP FUNCTION runs_halt_place(uuid, uuid);
DROP FUNCTION runs_keep_halt();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0060_policies'),
    ]

    operations = [
        migrations.CreateModel(
            name='HaltNow',
            fields=[
                ('halt', models.UUIDField(primary_key=True, serialize=False)),
                ('id', models.BigIntegerField(help_text='The row of the record.')),
                ('n', models.IntegerField()),
                ('kind', models.TextField()),
                ('scope', models.TextField()),
                ('key', models.TextField()),
                ('refuses', models.BooleanField()),
                ('is_staged', models.BooleanField()),
                ('share', models.IntegerField()),
                ('agents', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                ('by', models.TextField(help_text='Who set it.')),
                ('why', models.TextField()),
                ('since', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='HaltSeen',
            fields=[
                ('pk', models.CompositePrimaryKey('line', 'worker', blank=True, editable=False, primary_key=True, serialize=False)),
                ('line', models.BigIntegerField(help_text='The row of the record.')),
                ('worker', models.UUIDField()),
                ('seen_at', models.DateTimeField()),
                ('confirmed_at', models.DateTimeField(help_text='Its runs stand still but for calls in flight.', null=True)),
                ('running', models.IntegerField(help_text='Runs in its scope that have not come to their next step.')),
                ('calls', models.JSONField(help_text='Calls in flight: run, slot, what, since, timeout.')),
                ('told_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Held',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('halt', models.UUIDField()),
                ('seen', models.BigIntegerField()),
                ('keys', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), null=True, size=None)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Stood',
            fields=[
                ('id', models.UUIDField(help_text="The wait's, or the run's.", primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('at', models.DateTimeField(help_text='When it was counted: what comes after was put off by way of precaution.')),
                ('until', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Halt',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('halt', models.UUIDField()),
                ('n', models.IntegerField()),
                ('kind', models.TextField(choices=[('halt', 'Halt'), ('quarantine', 'Quarantine'), ('starts', 'Starts')])),
                ('scope', models.TextField(choices=[('all', 'All'), ('tag', 'Tag'), ('agent', 'Agent'), ('version', 'Version'), ('tool', 'Tool'), ('provider', 'Provider')])),
                ('key', models.TextField(blank=True)),
                ('refuses', models.BooleanField(help_text='New starts are refused, and not only kept waiting.')),
                ('stage', models.TextField(choices=[('whole', 'Whole'), ('staged', 'Staged'), ('lifted', 'Lifted')])),
                ('share', models.IntegerField(help_text='How many of 10,000 runs it lets through.')),
                ('agents', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Whose runs it lets through.', size=None)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Runs with one of these it lets through.', size=None)),
                ('by', models.TextField()),
                ('why', models.TextField()),
                ('at', models.DateTimeField()),
                ('opens', models.BinaryField(max_length=32, null=True)),
                ('lock', models.BinaryField(max_length=32, null=True)),
                ('code', models.BinaryField(null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('halt', 'n'), name='runs_halt_row_once'), models.CheckConstraint(condition=models.Q(('share__gte', 0), ('share__lt', 10000)), name='runs_halt_share')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='halt',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='c87d1d017f2834bdb9a0a5d9eaaf5b962397e69f', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_b19bd', table='runs_halt', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='halt',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='785a66aea6501d062d9a5b2b98b0b1a216545a01', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_873d5', table='runs_halt', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='held',
            index=models.Index(fields=['seen'], name='runs_held_seen'),
        ),
        migrations.AddIndex(
            model_name='stood',
            index=models.Index(fields=['until'], name='runs_stood_until'),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
