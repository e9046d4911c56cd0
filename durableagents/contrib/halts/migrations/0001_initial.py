import django.contrib.postgres.fields
from django.db import migrations, models

from ledger.migration_operations import AdoptModel, append_only_triggers


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py
    needed_while = (
        "EXISTS (SELECT 1 FROM runs_haltnow) OR EXISTS (SELECT 1 FROM runs_held)",
        "runs or calls are halted: lift the halts first",
    )

    initial = True

    dependencies = [
        ('runs', '0004_run_by_trace'),
    ]

    operations = [
        AdoptModel(
            name='Halt',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('halt', models.UUIDField()),
                ('n', models.IntegerField()),
                ('kind', models.TextField(choices=[('halt', 'Halt'), ('quarantine', 'Quarantine'), ('starts', 'Starts')])),
                ('scope', models.TextField(choices=[('all', 'All'), ('tag', 'Tag'), ('agent', 'Agent'), ('version', 'Version'), ('tool', 'Tool'), ('provider', 'Provider')])),
                ('key', models.TextField(blank=True)),
                ('refuses', models.BooleanField(help_text='New starts are refused instead of kept waiting.')),
                ('stage', models.TextField(choices=[('whole', 'Whole'), ('staged', 'Staged'), ('lifted', 'Lifted')])),
                ('share', models.IntegerField(help_text='Number of runs out of 10,000 that the halt lets through.')),
                ('agents', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Agents whose runs the halt lets through.', size=None)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Tags whose runs the halt lets through.', size=None)),
                ('by', models.TextField()),
                ('why', models.TextField()),
                ('at', models.DateTimeField()),
                ('opens', models.BinaryField(max_length=32, null=True)),
                ('lock', models.BinaryField(max_length=32, null=True)),
                ('code', models.BinaryField(null=True)),
            ],
            options={
                'db_table': 'runs_halt',
                'constraints': [models.UniqueConstraint(fields=('halt', 'n'), name='runs_halt_row_once'), models.CheckConstraint(condition=models.Q(('share__gte', 0), ('share__lt', 10000)), name='runs_halt_share')],
                'triggers': append_only_triggers('halts.Halt', 'runs_halt'),
            },
        ),
        AdoptModel(
            name='HaltNow',
            fields=[
                ('halt', models.UUIDField(primary_key=True, serialize=False)),
                ('id', models.BigIntegerField(help_text="The row of the halt's record.")),
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
            options={
                'db_table': 'runs_haltnow',
            },
        ),
        AdoptModel(
            name='HaltSeen',
            fields=[
                ('pk', models.CompositePrimaryKey('line', 'worker', blank=True, editable=False, primary_key=True, serialize=False)),
                ('line', models.BigIntegerField(help_text="The row of the halt's record.")),
                ('worker', models.UUIDField()),
                ('seen_at', models.DateTimeField()),
                ('confirmed_at', models.DateTimeField(help_text='Its runs have stopped, except for calls in flight.', null=True)),
                ('running', models.IntegerField(help_text='Runs in its scope that have not reached their next step.')),
                ('calls', models.JSONField(help_text='Calls in flight: run, slot, what, since, timeout.')),
                ('told_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'runs_haltseen',
            },
        ),
        AdoptModel(
            name='Held',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('halt', models.UUIDField()),
                ('seen', models.BigIntegerField()),
                ('keys', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), null=True, size=None)),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'runs_held',
                'indexes': [models.Index(fields=['seen'], name='runs_held_seen')],
            },
        ),
        AdoptModel(
            name='Stood',
            fields=[
                ('id', models.UUIDField(help_text="Id of the wait or of the run.", primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('at', models.DateTimeField(help_text='Time up to which it is counted; if in the future, the deadline was extended as a precaution.')),
                ('until', models.DateTimeField()),
            ],
            options={
                'db_table': 'runs_stood',
                'indexes': [models.Index(fields=['until'], name='runs_stood_until')],
            },
        ),
    ]
