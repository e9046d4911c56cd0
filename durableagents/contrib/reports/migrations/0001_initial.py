import django.db.models.deletion
from django.db import migrations, models


# For the detector, and the number of repeated calls. These events are rare, so that others cost an append nothing but
# the comparison of their kind.
SUSPICIOUS = """CREATE INDEX reports_event_suspicious ON ledger_event (at, run_id, seq)
    WHERE kind IN ('ToolAnsweredLate', 'CallbackArrivedLate', 'ToolOutcomeUnknown', 'ToolRedispatched')"""

from ledger.migration_operations import append_only_triggers


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [("ledger", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name='Finding',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.TextField(choices=[('contradicting_receipt', 'Contradicting receipt'), ('two_external_ids', 'Two external ids under one key'), ('different_answer', 'Repeat answered differently'), ('key_rejected', 'Key rejected'), ('probe', 'Probe'), ('person', 'Reported by a person')])),
                ('key', models.TextField(help_text='Key of the fact, so that it is stored only once.', unique=True)),
                ('run_id', models.UUIDField(null=True)),
                ('seq', models.BigIntegerField(help_text='The journal event of the fact.', null=True)),
                ('slot', models.TextField(blank=True, default='')),
                ('attempt', models.SmallIntegerField(null=True)),
                ('tool', models.TextField(blank=True, default='')),
                ('what', models.TextField(help_text='The recorded facts in one sentence.')),
                ('fact_at', models.DateTimeField(help_text='When it was recorded.')),
                ('found_at', models.DateTimeField()),
                ('by', models.TextField(blank=True, default='', help_text='Person who reported it; empty: the detector.')),
            ],
            options={
                'indexes': [models.Index(fields=['-fact_at', '-id'], name='reports_finding_by_time'), models.Index(fields=['run_id'], name='reports_finding_by_run')],
                'triggers': append_only_triggers('reports.Finding'),
            },
        ),
        migrations.CreateModel(
            name='DetectorPlace',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('checked_at', models.DateTimeField(null=True)),
                ('event_at', models.DateTimeField(help_text='Events before this one have been examined.', null=True)),
                ('entry', models.BigIntegerField(default=0, help_text='Ledger entries up to this one have been examined.')),
                ('probe', models.BigIntegerField(default=0, help_text='Probes up to this one have been examined.')),
                ('is_behind', models.BooleanField(default=True, help_text='Whether more was left than one pass may read.')),
            ],
        ),
        migrations.CreateModel(
            name='Mailing',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('schedule', models.TextField()),
                ('ends_at', models.DateTimeField()),
                ('recipient', models.TextField()),
                ('at', models.DateTimeField()),
                ('outcome', models.TextField()),
                ('why', models.TextField(blank=True, default='')),
            ],
            options={
                'indexes': [models.Index(fields=['schedule', 'ends_at', 'recipient'], name='reports_mailing_of')],
                'triggers': append_only_triggers('reports.Mailing'),
            },
        ),
        migrations.CreateModel(
            name='PendingCheck',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'seq', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('seq', models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='StorageSample',
            fields=[
                ('pk', models.CompositePrimaryKey('day', 'table_name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField()),
                ('table_name', models.TextField()),
                ('bytes', models.BigIntegerField()),
            ],
            options={'triggers': append_only_triggers('reports.StorageSample')},
        ),
        migrations.CreateModel(
            name='StoredReport',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('schedule', models.TextField()),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('made_at', models.DateTimeField()),
                ('content', models.TextField()),
                ('sha256', models.TextField()),
                ('problem', models.TextField(blank=True, default='')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('schedule', 'ends_at', 'name'), name='reports_stored_once')],
                'triggers': append_only_triggers('reports.StoredReport'),
            },
        ),
        migrations.CreateModel(
            name='Closure',
            fields=[
                ('finding', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='closure', serialize=False, to='reports.finding')),
                ('verdict', models.TextField(choices=[('duplicate', 'It happened twice'), ('no_duplicate', 'The effect did not happen twice')])),
                ('root_cause', models.TextField()),
                ('by', models.TextField()),
                ('person', models.BigIntegerField(null=True)),
                ('at', models.DateTimeField()),
            ],
            options={'triggers': append_only_triggers('reports.Closure')},
        ),
        migrations.RunSQL(SUSPICIOUS, "DROP INDEX reports_event_suspicious"),
    ]
