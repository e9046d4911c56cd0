"""Tables of the journal and of the records of acts."""

import django.contrib.postgres.fields
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

# The server's defaults wait until a fifth of a table is dead or new, which for millions of rows is hours of work at once.
STORAGE = """
ALTER TABLE ledger_head SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE ledger_event SET (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE ledger_ledgerentry SET (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
"""
# The installed SQL definitions by name, with the digest of their text: see ledger/definitions.py.
DEFINITIONS = "CREATE TABLE ledger_definition (name text PRIMARY KEY, digest text NOT NULL)"


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='ActRecord',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(null=True)),
                ('action', models.TextField()),
                ('subject', models.TextField(blank=True, help_text="Object of the act if it isn't the run: a question, a signal, a host.")),
                ('queue', models.TextField(blank=True, help_text='Queue or role that a request was addressed to.')),
                ('by', models.TextField()),
                ('person', models.BigIntegerField(null=True)),
                ('role', models.TextField(blank=True)),
                ('auth', models.TextField(blank=True)),
                ('address', models.TextField(blank=True)),
                ('justification', models.TextField(blank=True)),
                ('seq', models.BigIntegerField(help_text="The journal's last event when the person acted.", null=True)),
                ('chain', models.BinaryField(max_length=32, null=True)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
                ('at', models.DateTimeField()),
                ('code', models.BinaryField(null=True)),
                ('n', models.BigIntegerField(null=True)),
                ('prev_hash', models.BinaryField(max_length=32, null=True)),
                ('hash', models.BinaryField(max_length=32, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['run_id', 'id'], name='ledger_act_by_run'), models.Index(fields=['-at', '-id'], name='ledger_act_by_moment'), models.Index(fields=['action', '-at', '-id'], name='ledger_act_by_action'), models.Index(fields=['by', '-at', '-id'], name='ledger_act_by_who')],
                'constraints': [models.UniqueConstraint(fields=('n',), name='ledger_act_place_once'), models.UniqueConstraint(fields=('code',), name='ledger_act_code_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='ca4df81695ae4ed2ca43194f5fe289c1ae8d5744', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_26ea0', table='ledger_actrecord', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='36e8ae4d3b9209d70d13b95392ed837bf678653b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_bbe02', table='ledger_actrecord', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'seq', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('seq', models.BigIntegerField()),
                ('epoch', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('kind', models.TextField()),
                ('slot', models.TextField(null=True)),
                ('attempt', models.SmallIntegerField(default=0)),
                ('fact', models.TextField(null=True)),
                ('clear', models.BinaryField()),
                ('sealed', models.BinaryField(null=True)),
                ('prev_hash', models.BinaryField(max_length=32)),
                ('hash', models.BinaryField(max_length=32)),
                ('code', models.BinaryField(help_text="Proof that its writer had the installation's key: see ledger/codes.py.", null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('kind', 'UndoRegistered')), fields=['run_id'], name='ledger_event_to_undo'), models.Index(condition=models.Q(('kind__in', ['UndoAsked', 'UndoBegun', 'EffectUndone', 'EffectLeft', 'RunMigrated'])), fields=['run_id'], name='ledger_event_turned'), models.Index(condition=models.Q(('kind', 'RunRetried')), fields=['run_id'], name='ledger_event_retried')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('slot__isnull', False)), fields=('run_id', 'slot', 'attempt', 'fact'), name='ledger_event_one_fact_per_slot')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='952eb006181bdf0fe666def3d6c73c4b3c3a9c1e', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_b44a2', table='ledger_event', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='f8396a4cb775899ab1f46d2ade962390bc94ad65', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_2c860', table='ledger_event', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Head',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('epoch', models.BigIntegerField(default=0)),
                ('lease', models.UUIDField(null=True)),
                ('seq', models.BigIntegerField(default=0)),
                ('claimed_seq', models.BigIntegerField(default=0)),
                ('deaths', models.SmallIntegerField(default=0)),
                ('chain', models.BinaryField(max_length=32)),
                ('is_pause_requested', models.BooleanField(default=False)),
                ('is_cancel_requested', models.BooleanField(default=False)),
                ('is_on_hold', models.BooleanField(default=False)),
                ('steps', models.IntegerField(default=0)),
                ('tokens_in', models.BigIntegerField(default=0)),
                ('tokens_out', models.BigIntegerField(default=0)),
                ('usd_micro', models.BigIntegerField(default=0)),
                ('tool_calls', models.IntegerField(default=0)),
                ('model_calls', models.IntegerField(default=0)),
                ('unpriced_calls', models.IntegerField(db_default=0, default=0, help_text='Number of model requests without a known cost, because the model has no price.')),
                ('cap_steps', models.IntegerField(null=True)),
                ('cap_tokens_in', models.BigIntegerField(null=True)),
                ('cap_tokens_out', models.BigIntegerField(null=True)),
                ('cap_usd_micro', models.BigIntegerField(null=True)),
                ('cap_tool_calls', models.IntegerField(null=True)),
                ('cap_model_calls', models.IntegerField(null=True)),
                ('bytes', models.BigIntegerField(db_default=0, help_text='Stored bytes of its events; null if the run is older than this count.', null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('claimed_seq__gte', 0), ('deaths__gte', 0), ('epoch__gte', 0), ('seq__gte', 0)), name='ledger_head_in_range')],
            },
        ),
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('seq', models.BigIntegerField(help_text='The journal event written with this fact.')),
                ('slot', models.TextField()),
                ('attempt', models.SmallIntegerField(default=0)),
                ('fact', models.TextField(choices=[('pending', 'Pending'), ('committed', 'Committed'), ('failed', 'Failed'), ('unknown', 'Unknown'), ('reconciled', 'Reconciled'), ('compensated', 'Compensated')])),
                ('tool', models.TextField()),
                ('replay_class', models.TextField()),
                ('key', models.TextField(null=True)),
                ('input_hash', models.TextField(null=True)),
                ('external_id', models.TextField(null=True)),
                ('digest', models.TextField(null=True)),
                ('actor', models.TextField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['run_id', 'seq'], name='ledger_entry_by_run'), models.Index(condition=models.Q(('external_id__isnull', False)), fields=['external_id'], name='ledger_entry_by_external_id'), models.Index(condition=models.Q(('fact', 'reconciled')), fields=['tool', '-id'], name='ledger_entry_reconciled')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('fact', 'pending')), fields=('run_id', 'slot', 'attempt'), name='ledger_entry_one_intent_per_attempt')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='05450319cc43ea1f23be8b71e23b83df1c7676e9', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_55eb4', table='ledger_ledgerentry', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='d635bc825ef5450e94601df6305378439790132b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_84664', table='ledger_ledgerentry', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='OverrideRecord',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('action', models.TextField()),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('auth', models.TextField()),
                ('address', models.TextField(blank=True)),
                ('justification', models.TextField()),
                ('seq', models.BigIntegerField(help_text="The journal's last event when the person acted.")),
                ('chain', models.BinaryField(max_length=32)),
                ('before', models.JSONField()),
                ('after', models.JSONField()),
                ('at', models.DateTimeField()),
                ('code', models.BinaryField(null=True)),
                ('person', models.BigIntegerField(null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['run_id', 'id'], name='ledger_override_by_run'), models.Index(fields=['-at', '-id'], name='ledger_override_by_moment'), models.Index(fields=['action', '-at', '-id'], name='ledger_override_by_action'), models.Index(fields=['by', '-at', '-id'], name='ledger_override_by_who')],
                'constraints': [models.UniqueConstraint(fields=('code',), name='ledger_override_code_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='cb474463f4097f542030e367e218dc8f7ece7120', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_5b0c0', table='ledger_overriderecord', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='f3e6cfe6293875ce990cc5d207dc3db018fb5cc1', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_5bd4b', table='ledger_overriderecord', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Register',
            fields=[
                ('name', models.TextField(primary_key=True, serialize=False)),
                ('n', models.BigIntegerField(default=0)),
                ('chain', models.BinaryField(max_length=32)),
            ],
        ),
        migrations.CreateModel(
            name='AccountRecord',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('action', models.TextField()),
                ('subject', models.TextField(help_text='`user:ada`, `role:operator` or `key:ada/laptop`, with the name of that time.')),
                ('subject_person', models.BigIntegerField(null=True)),
                ('by', models.TextField(help_text='Actor, or `database:ROLE` for a change made outside the application.')),
                ('person', models.BigIntegerField(null=True)),
                ('auth', models.TextField(blank=True)),
                ('address', models.TextField(blank=True)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
                ('at', models.DateTimeField()),
                ('reason', models.TextField(blank=True, db_default='', default='')),
                ('tx', models.TextField(blank=True, db_default='', default='')),
                ('code', models.BinaryField(null=True)),
                ('n', models.BigIntegerField(null=True)),
                ('prev_hash', models.BinaryField(max_length=32, null=True)),
                ('hash', models.BinaryField(max_length=32, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['-at', '-id'], name='ledger_account_by_moment'), models.Index(fields=['action', '-at', '-id'], name='ledger_account_by_action'), models.Index(fields=['by', '-at', '-id'], name='ledger_account_by_who'), models.Index(fields=['subject_person'], name='ledger_account_by_subject')],
                'constraints': [models.UniqueConstraint(fields=('n',), name='ledger_account_place_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='4ab6897fe6d92b40942578737ebabbfb6186df45', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_5d065', table='ledger_accountrecord', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='ef574a2118ced6ef0382b8ea35db743821fb5544', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_7a151', table='ledger_accountrecord', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='RowCode',
            fields=[
                ('pk', models.CompositePrimaryKey('table_name', 'key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('table_name', models.TextField()),
                ('key', models.TextField()),
                ('n', models.BigIntegerField()),
                ('state', models.TextField(help_text='Digest of the row; empty if the row was absent.')),
                ('code', models.BinaryField()),
            ],
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='rowcode',
            trigger=pgtrigger.compiler.Trigger(name='kept', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='df8ed1a3bc306341af0d5cb5b464c70633920991', operation='DELETE', pgid='pgtrigger_kept_624ca', table='ledger_rowcode', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='rowcode',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='72e236bacb9cee1b13755f975d2bdf68a04fbdf0', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_b0056', table='ledger_rowcode', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='rowcode',
            trigger=pgtrigger.compiler.Trigger(name='in_order', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF NEW.n <> 1 + coalesce(OLD.n, 0)\n                    OR (NEW.table_name, NEW.key) <> (OLD.table_name, OLD.key) THEN\n                    RAISE EXCEPTION 'code % of % % is not the next one', NEW.n, NEW.table_name, NEW.key;\n                END IF;\n                RETURN NEW;\n                ", hash='d60a7d5645334e97e2fda8cca07320a0efa6a990', operation='INSERT OR UPDATE', pgid='pgtrigger_in_order_65b7e', table='ledger_rowcode', when='BEFORE')),
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunSQL(DEFINITIONS, "DROP TABLE ledger_definition"),
    ]
