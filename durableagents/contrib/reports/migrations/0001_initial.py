import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


# For the detector, and the number of repeated calls. These events are rare, so that others cost an append nothing but
# the comparison of their kind.
SUSPICIOUS = """CREATE INDEX reports_event_suspicious ON ledger_event (at, run_id, seq)
    WHERE kind IN ('ToolAnsweredLate', 'CallbackArrivedLate', 'ToolOutcomeUnknown', 'ToolRedispatched')"""


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
                ('key', models.TextField(help_text='Names the fact, so that it is stored once.', unique=True)),
                ('run_id', models.UUIDField(null=True)),
                ('seq', models.BigIntegerField(help_text='The journal event of the fact.', null=True)),
                ('slot', models.TextField(blank=True, default='')),
                ('attempt', models.SmallIntegerField(null=True)),
                ('tool', models.TextField(blank=True, default='')),
                ('what', models.TextField(help_text='What is on record, in a sentence.')),
                ('fact_at', models.DateTimeField(help_text='When it was recorded.')),
                ('found_at', models.DateTimeField()),
                ('by', models.TextField(blank=True, default='', help_text='Who reported it; empty: the detector.')),
            ],
        ),
        migrations.CreateModel(
            name='DetectorPlace',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('checked_at', models.DateTimeField(null=True)),
                ('event_at', models.DateTimeField(help_text='Events before it have been examined.', null=True)),
                ('entry', models.BigIntegerField(default=0, help_text='Ledger entries up to this one have been examined.')),
                ('probe', models.BigIntegerField(default=0, help_text='Probes up to this one have been examined.')),
                ('is_behind', models.BooleanField(default=True, help_text='There was more than one pass may read.')),
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
        ),
        migrations.CreateModel(
            name='Closure',
            fields=[
                ('finding', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='closure', serialize=False, to='reports.finding')),
                ('verdict', models.TextField(choices=[('duplicate', 'It happened twice'), ('no_duplicate', 'It did not happen twice')])),
                ('root_cause', models.TextField()),
                ('by', models.TextField()),
                ('person', models.BigIntegerField(null=True)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.AddIndex(
            model_name='finding',
            index=models.Index(fields=['-fact_at', '-id'], name='reports_finding_by_time'),
        ),
        migrations.AddIndex(
            model_name='finding',
            index=models.Index(fields=['run_id'], name='reports_finding_by_run'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='finding',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='4f4dd1e24dc13be1ac90e70ad0720703599fe6f1', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_ca2d1', table='reports_finding', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='finding',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='a3585c6d391f8abc684dff2b0820149a21b73c7d', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_fa93f', table='reports_finding', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='mailing',
            index=models.Index(fields=['schedule', 'ends_at', 'recipient'], name='reports_mailing_of'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='mailing',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='95ba19fb8ea154f47147f73de7913696dedd63be', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_fa051', table='reports_mailing', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='mailing',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='4aa029d5d8b5c6726762b568023f03979c154ffa', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_010bc', table='reports_mailing', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='storagesample',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='8037ec47ba71d10fe05cbf8d2a28b54594598c2d', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_7d466', table='reports_storagesample', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='storagesample',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='52119fa6d0b4dce60476564e66e66ef19e7ca14f', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_93a7d', table='reports_storagesample', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='storedreport',
            constraint=models.UniqueConstraint(fields=('schedule', 'ends_at', 'name'), name='reports_stored_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='storedreport',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b0dead1e5d8b1568087b94e0823d9fff05ee5241', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_5366c', table='reports_storedreport', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='storedreport',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='f9495ecf69c2410e7e697d0002a2da73a5f0e4b4', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_73aa5', table='reports_storedreport', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='closure',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='3b6c36b5c972fb97f577248aa51b161cc66d28db', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_c08cb', table='reports_closure', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='closure',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='71cbd607042cad859d8a9f6b35d086dd2adac733', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_fe6d4', table='reports_closure', when='BEFORE')),
        ),
        migrations.RunSQL(SUSPICIOUS, "DROP INDEX reports_event_suspicious"),
    ]
