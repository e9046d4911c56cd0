"""Tables of runs and of what they wait for."""

import datetime
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.fields.json
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django_fsm
import pgtrigger.compiler
import uuid
from django.db import migrations, models

# Runs are updated some four times each and keep room for it on their pages; append-only tables are frozen as they grow.
STORAGE = """
ALTER TABLE runs_run SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE runs_wait SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE runs_process SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE runs_checkpoint SET (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
"""
# Nothing in them is worth keeping after a crash of the database.
UNLOGGED = "ALTER TABLE runs_listener SET UNLOGGED; ALTER TABLE runs_overheard SET UNLOGGED"


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='AgentVersion',
            fields=[
                ('graph_id', models.TextField(primary_key=True, serialize=False)),
                ('fingerprint', models.TextField()),
                ('parts', models.JSONField()),
                ('first_used_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='BudgetDefault',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('agent', models.TextField(blank=True, default='', help_text='Name, or name@version; empty: any agent.')),
                ('tag', models.TextField(blank=True, default='', help_text="Tag of a run; empty: any tag.")),
                ('budget', models.JSONField(help_text='The caps, for example {"usd": "5.00", "model_calls": 200}.')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('agent', ''), ('tag', ''), _connector='XOR'), name='runs_budgetdefault_of_one_kind'), models.UniqueConstraint(fields=('agent', 'tag'), name='runs_budgetdefault_once')],
            },
        ),
        migrations.CreateModel(
            name='CachedRead',
            fields=[
                ('key', models.BinaryField(help_text='A keyed digest of tool, arguments and scope.', max_length=32, primary_key=True, serialize=False)),
                ('tool', models.TextField()),
                ('run_id', models.UUIDField(help_text='The run whose call read it, so that the row can be erased with that run.')),
                ('slot', models.TextField()),
                ('at', models.DateTimeField(help_text='Time when the call began.')),
                ('expires_at', models.DateTimeField()),
                ('size', models.IntegerField()),
                ('sealed', models.BinaryField()),
                ('code', models.BinaryField()),
            ],
            options={
                'indexes': [models.Index(fields=['expires_at'], name='runs_cachedread_by_end'), models.Index(fields=['run_id'], name='runs_cachedread_by_run')],
            },
        ),
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'seq', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('seq', models.BigIntegerField()),
                ('generation', models.SmallIntegerField()),
                ('node', models.TextField()),
                ('visit', models.IntegerField()),
                ('schema_version', models.SmallIntegerField(default=1)),
                ('fingerprint', models.TextField()),
                ('state', models.BinaryField()),
                ('checksum', models.BinaryField(max_length=32)),
                ('at', models.DateTimeField()),
            ],
            options={
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='f6f80b55fecd181782b0c55a2138b5f288387986', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_98f61', table='runs_checkpoint', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='bfb165a224a39d0b2716383a96bf21e9149a5b6c', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_b4d6b', table='runs_checkpoint', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyRecord',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('principal', models.TextField()),
                ('key', models.TextField()),
                ('body_hash', models.BinaryField(max_length=32)),
                ('status', models.SmallIntegerField()),
                ('body', models.JSONField()),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('principal', 'key'), name='runs_idempotency_once')],
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('seq', models.BigIntegerField(help_text='Its journal event.')),
                ('at', models.DateTimeField()),
                ('cause', models.TextField(choices=[('proof', 'Proof'), ('suspicion', 'Suspicion'), ('host_gone', 'Host Gone'), ('operator', 'Operator'), ('drain_cut', 'Drain Cut'), ('requeued', 'Requeued')])),
                ('proof', models.TextField()),
                ('worker', models.UUIDField()),
                ('host', models.TextField()),
                ('pid', models.IntegerField()),
                ('epoch', models.BigIntegerField(help_text="Epoch of the lost worker; that of the next claim is in the journal.")),
                ('reached', models.TextField(choices=[('claimed', 'Claimed'), ('intent_durable', 'Intent'), ('result_durable', 'Result'), ('visit_entered', 'Visit'), ('wait_opened', 'Wait')])),
                ('in_doubt', models.JSONField(help_text="Calls with a recorded intent but no recorded outcome.")),
                ('replayed', models.IntegerField(help_text='Recorded outcomes of this visit, which the next worker replays.')),
                ('is_counted', models.BooleanField()),
                ('deaths', models.SmallIntegerField()),
                ('is_stopped', models.BooleanField(help_text="Whether the run exceeded the limit of workers' deaths, so that an operator was asked.")),
                ('last_sign_at', models.DateTimeField(null=True)),
                ('detected_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['-at', '-id'], name='runs_incident_by_time'), models.Index(fields=['host', '-id'], name='runs_incident_by_host'), models.Index(fields=['cause', '-id'], name='runs_incident_by_cause')],
                'constraints': [models.UniqueConstraint(fields=('run_id', 'seq'), name='runs_incident_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='cebe3506b6f88caefe41a18ad99bbe75998d5a6d', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_cf76f', table='runs_incident', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='3e81dfa547f8e8bea417c78addba7a35e8230638', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_a0787', table='runs_incident', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Listener',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('until', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='LogLine',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('at', models.DateTimeField()),
                ('level', models.TextField()),
                ('text', models.TextField()),
            ],
            options={
                'indexes': [models.Index(fields=['run_id', 'id'], name='runs_logline_by_run')],
            },
        ),
        migrations.CreateModel(
            name='Overheard',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('slot', models.TextField()),
                ('attempt', models.IntegerField()),
                ('epoch', models.BigIntegerField(help_text='Epoch of the worker that receives it.')),
                ('text', models.TextField()),
                ('characters', models.IntegerField(help_text='Length of the whole text so far, of which only the end is stored.')),
                ('at', models.DateTimeField(db_index=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('run_id', 'slot'), name='runs_overheard_once')],
            },
        ),
        migrations.CreateModel(
            name='PolicyRevision',
            fields=[
                ('revision', models.BigIntegerField(primary_key=True, serialize=False)),
                ('live', models.IntegerField()),
                ('policies', models.TextField()),
                ('set_by', models.TextField()),
                ('at', models.DateTimeField()),
                ('code', models.BinaryField(null=True)),
            ],
            options={
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='6722f2117e97231d667c1174dee8607d64f5b908', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_9c297', table='runs_policyrevision', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='cc9aa447738c34c40617bba5a8d5a26581835223', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_eac1d', table='runs_policyrevision', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Price',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('model', models.TextField()),
                ('usd_micro_in', models.BigIntegerField()),
                ('usd_micro_out', models.BigIntegerField()),
                ('valid_from', models.DateTimeField()),
                ('set_by', models.TextField()),
                ('set_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['model', '-valid_from', '-id'], name='runs_price_in_force')],
                'constraints': [models.CheckConstraint(condition=models.Q(('usd_micro_in__gte', 0), ('usd_micro_out__gte', 0)), name='runs_price_not_negative')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='bd71e3de18cf98bfb15716c20141bff7baad35bc', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_fbb92', table='runs_price', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='c683608774dfbfbcb57cae60daffdb3565af3cda', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_b2e81', table='runs_price', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Process',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('kind', models.TextField()),
                ('host', models.TextField()),
                ('boot', models.TextField(help_text='Boot id and pid namespace, within which a pid is unique.')),
                ('pid', models.IntegerField()),
                ('born_ticks', models.BigIntegerField(help_text="The kernel's start time of the process, in clock ticks since boot.")),
                ('started_at', models.DateTimeField()),
                ('last_heartbeat_at', models.DateTimeField()),
                ('slots_used', models.IntegerField(default=0)),
                ('slots_total', models.IntegerField(default=0)),
                ('tools_busy', models.JSONField(db_default=[], default=list, help_text='The tools whose threads were all busy at the last heartbeat, and for how long: workers only.')),
                ('anchored_at', models.DateTimeField(help_text='Time of its last heartbeat while it held its session lock: workers only.', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('end_cause', models.TextField(blank=True, default='', help_text='Why it is recorded as ended: see Incident.Cause; empty if it ended normally.')),
                ('end_proof', models.TextField(blank=True, default='', help_text='The same as text.')),
                ('drain_asked_at', models.DateTimeField(help_text='Time when an operator asked it to drain: workers only.', null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['kind'], name='runs_process_alive')],
            },
        ),
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('agent', models.TextField()),
                ('version', models.TextField()),
                ('graph_id', models.TextField()),
                ('state', django_fsm.FSMField(choices=[('pending', 'Pending'), ('running', 'Running'), ('waiting_tool', 'Waiting Tool'), ('waiting_human', 'Waiting Human'), ('waiting_event', 'Waiting Event'), ('paused', 'Paused'), ('compensating', 'Compensating'), ('completed', 'Completed'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='pending', max_length=50, protected=True)),
                ('generation', models.SmallIntegerField(default=0)),
                ('node', models.TextField(blank=True, default='')),
                ('visit', models.IntegerField(default=0)),
                ('ready_at', models.DateTimeField(help_text="Time from which a worker may claim it; null if it doesn't need one.", null=True)),
                ('owner', models.UUIDField(help_text='The worker process that executes the run now.', null=True)),
                ('is_woken', models.BooleanField(default=False, help_text='Whether it continues once resumed, because something arrived or its worker paused it midway.')),
                ('is_solo', models.BooleanField(default=False, help_text='Whether workers keep dying on it, so that it is executed alone in a process.')),
                ('priority', models.SmallIntegerField(default=0)),
                ('tags', models.JSONField(default=list)),
                ('trace_id', models.TextField()),
                ('created_by', models.TextField()),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('last_checkpoint_at', models.DateTimeField(null=True)),
                ('end_seq', models.BigIntegerField(help_text='The event that holds the output or the error.', null=True)),
                ('error_code', models.TextField(blank=True, default='')),
                ('creator', models.BigIntegerField(help_text='The account of the person who started it: names can be changed.', null=True)),
                ('about', models.TextField(blank=True, db_default='', default='', help_text='Subject taken from its input, for lists.')),
                ('time_up_at', models.DateTimeField(db_default=django.db.models.expressions.CombinedExpression(django.db.models.functions.datetime.Now(), '+', models.Value(datetime.timedelta(days=90))), null=True)),
                ('parent', models.UUIDField(help_text='The run that started it as a step.', null=True)),
                ('parent_slot', models.TextField(blank=True, db_default='', default='')),
                ('parent_attempt', models.SmallIntegerField(db_default=0, default=0)),
                ('depth', models.SmallIntegerField(db_default=0, default=0, help_text='Number of its ancestors.')),
                ('is_told', models.BooleanField(db_default=False, default=False, help_text='Whether its parent was notified of its end.')),
                ('business_key', models.TextField(blank=True, db_default='', default='', help_text="The caller's own key, such as an invoice number.")),
                ('is_queued', models.BooleanField(db_default=False, default=False, help_text='Whether it may not start before other runs of its key have ended.')),
                ('is_passed_on', models.BooleanField(db_default=False, default=False, help_text='Whether it has ended, and the run queued behind it was admitted.')),
                ('start_at', models.DateTimeField(help_text='Time before which it may not start.', null=True)),
                ('start_before', models.DateTimeField(help_text='If it has not started by then, it ends as cancelled.', null=True)),
                ('lane', models.TextField(blank=True, db_collation='C', db_default='', default='', help_text='The tag under which it is queued; set by the database.')),
                ('came_from', models.UUIDField(help_text='The run that this one continues.', null=True)),
                ('first', models.UUIDField(help_text='The first run of a chain of continuations.', null=True)),
                ('goes_on_as', models.UUIDField(help_text='The run that continues this one, which ended by being continued.', null=True)),
                ('goes_on_by', models.TextField(blank=True, db_default='', default='', help_text='renewal, handoff, or neither.')),
                ('handoffs', models.SmallIntegerField(db_default=0, default=0, help_text='Number of hand-offs among them.')),
                ('turn', models.IntegerField(db_default=0, default=0, help_text='Number of runs before it in the chain.')),
                ('fork_how', models.TextField(blank=True, db_default='', default='', help_text='fork, start_again.')),
                ('forked_from', models.UUIDField(help_text='The run that it was forked or started again from.', null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('owner__isnull', False)), fields=['owner'], name='runs_run_owned'), models.Index(fields=['-created_at', '-id'], name='runs_run_by_time'), models.Index(fields=['state', '-created_at', '-id'], name='runs_run_by_state_time'), models.Index(fields=['state', 'agent', '-created_at', '-id'], name='runs_run_by_agent_time'), models.Index(fields=['state', 'agent', 'version', '-created_at', '-id'], name='runs_run_by_version_time'), models.Index(condition=models.Q(('ended_at__isnull', True), ('time_up_at__isnull', False)), fields=['time_up_at'], name='runs_run_time_up'), models.Index(condition=models.Q(('parent__isnull', False)), fields=['parent', '-created_at'], name='runs_run_children'), models.Index(condition=models.Q(('ended_at__isnull', False), ('is_told', False), ('parent__isnull', False)), fields=['ended_at'], name='runs_run_untold'), models.Index(condition=models.Q(('ended_at__isnull', True), ('parent__isnull', False)), fields=['parent', 'id'], name='runs_run_children_active'), models.Index(condition=models.Q(models.Q(('business_key', ''), _negated=True), ('ended_at__isnull', True)), fields=['agent', 'business_key', 'created_at', 'id'], name='runs_run_of_key'), models.Index(condition=models.Q(models.Q(('business_key', ''), _negated=True), ('ended_at__isnull', False), ('is_passed_on', False)), fields=['ended_at'], name='runs_run_to_pass_on'), models.Index(condition=models.Q(('ended_at__isnull', True), ('start_before__isnull', False), ('started_at__isnull', True)), fields=['start_before'], name='runs_run_start_before'), models.Index(models.F('graph_id'), models.F('is_solo'), models.F('lane'), django.db.models.expressions.CombinedExpression(models.F('priority'), '*', models.Value(-1)), models.F('ready_at'), condition=models.Q(('ready_at__isnull', False)), name='runs_run_wanted'), models.Index(condition=models.Q(('first__isnull', False)), fields=['first', 'turn'], name='runs_run_succession'), models.Index(models.F('graph_id'), models.F('is_solo'), models.F('lane'), django.db.models.expressions.CombinedExpression(models.F('priority'), '*', models.Value(-1)), models.F('ready_at'), condition=models.Q(('ready_at__isnull', False), models.Q(models.Q(('state', 'pending'), _negated=True), ('came_from__isnull', False), ('parent__isnull', False), _connector='OR')), name='runs_run_wanted_begun'), models.Index(condition=models.Q(('forked_from__isnull', False)), fields=['forked_from', '-created_at'], name='runs_run_forks'), models.Index(models.F('graph_id'), models.OrderBy(django.db.models.functions.comparison.Coalesce('ended_at', 'started_at'), descending=True), condition=models.Q(('started_at__isnull', False)), name='runs_run_judged'), models.Index(models.F('agent'), models.OrderBy(django.db.models.functions.comparison.Coalesce('ended_at', 'started_at'), descending=True), condition=models.Q(('generation__gt', 0), ('started_at__isnull', False)), name='runs_run_moved'), models.Index(condition=models.Q(('creator__isnull', False)), fields=['creator', 'state', '-created_at', '-id'], name='runs_run_by_creator')],
                'constraints': [models.UniqueConstraint(condition=models.Q(models.Q(('business_key', ''), _negated=True), ('ended_at__isnull', True), ('is_queued', False)), fields=('agent', 'business_key'), name='runs_run_one_of_key'), models.UniqueConstraint(condition=models.Q(('came_from__isnull', False)), fields=('came_from',), name='runs_run_one_heir')],
                'triggers': [pgtrigger.compiler.Trigger(name='born_pending', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state <> 'pending')", func="RAISE EXCEPTION 'a run begins as pending, not as %', NEW.state;", hash='e1aa0dfe6b457bbe2bbb0c4611b8ef5b356f57d4', operation='INSERT', pgid='pgtrigger_born_pending_848d3', table='runs_run', when='BEFORE')), pgtrigger.compiler.Trigger(name='starter_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."created_by" IS DISTINCT FROM (NEW."created_by") OR OLD."creator" IS DISTINCT FROM (NEW."creator"))', func="RAISE EXCEPTION 'who started a run never changes: run %', OLD.id;", hash='aa1997d4663cc21144ed772e59ee713776ff63e6', operation='UPDATE OF "created_by", "creator"', pgid='pgtrigger_starter_is_frozen_5bb08', table='runs_run', when='BEFORE')), pgtrigger.compiler.Trigger(name='succession_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN ((OLD.came_from IS NOT NULL AND (NEW.came_from, NEW.first, NEW.turn) IS DISTINCT FROM (OLD.came_from, OLD.first, OLD.turn)) OR (OLD.goes_on_as IS NOT NULL AND (NEW.goes_on_as, NEW.goes_on_by) IS DISTINCT FROM (OLD.goes_on_as, OLD.goes_on_by)))', func="RAISE EXCEPTION 'which run goes on as which never changes: run %', OLD.id;", hash='14ce20ef3a083f35a4f0acb72cb463b131bd458f', operation='UPDATE OF "came_from", "first", "turn", "goes_on_as", "goes_on_by"', pgid='pgtrigger_succession_is_frozen_c6871', table='runs_run', when='BEFORE')), pgtrigger.compiler.Trigger(name='fork_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.forked_from IS NOT NULL AND (NEW.forked_from, NEW.fork_how) IS DISTINCT FROM (OLD.forked_from, OLD.fork_how))', func="RAISE EXCEPTION 'of which run a run is a fork never changes: run %', OLD.id;", hash='8b49e88211dac590b7f4a39a1d226341fc1bdf4f', operation='UPDATE OF "forked_from", "fork_how"', pgid='pgtrigger_fork_is_frozen_607f1', table='runs_run', when='BEFORE')), pgtrigger.compiler.Trigger(name='legal_moves_only', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."state", \':\', NEW."state") = ANY(\'{compensating:cancelled,compensating:failed,compensating:paused,compensating:waiting_event,compensating:waiting_human,compensating:waiting_tool,completed:compensating,failed:running,paused:cancelled,paused:compensating,paused:failed,paused:pending,paused:running,paused:waiting_event,paused:waiting_human,paused:waiting_tool,pending:cancelled,pending:failed,pending:paused,pending:running,pending:waiting_human,running:cancelled,running:compensating,running:completed,running:failed,running:paused,running:waiting_event,running:waiting_human,running:waiting_tool,waiting_event:cancelled,waiting_event:compensating,waiting_event:paused,waiting_event:running,waiting_human:cancelled,waiting_human:compensating,waiting_human:failed,waiting_human:paused,waiting_human:running,waiting_tool:cancelled,waiting_tool:compensating,waiting_tool:paused,waiting_tool:running}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."state" IS DISTINCT FROM NEW."state") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "state" from "%" to "%" on table %\', OLD."state", NEW."state", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='725a1ca5505c0d9d31724c3f1a1602058fcc6eaa', operation='UPDATE', pgid='pgtrigger_legal_moves_only_c1fe5', table='runs_run', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Message',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.IntegerField(help_text="Position among the run's messages, from 1.")),
                ('name', models.TextField()),
                ('by', models.TextField(help_text='Who sent it.')),
                ('sender_id', models.TextField(help_text="Id given by the sender: a repetition with it is the same message.", null=True)),
                ('seq', models.BigIntegerField(help_text='The event of its arrival.')),
                ('outcome', models.TextField(blank=True, choices=[('', 'waiting'), ('answered', 'Answered'), ('refused', 'Refused'), ('failed', 'Failed'), ('ended', 'Ended')], db_default='', default='')),
                ('answered_seq', models.BigIntegerField(help_text='The event of its answer.', null=True)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='messages', to='runs.run')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('outcome', '')), fields=['run', 'n'], name='runs_message_unanswered')],
                'constraints': [models.UniqueConstraint(fields=('run', 'n'), name='runs_message_once'), models.UniqueConstraint(fields=('run', 'by', 'sender_id'), name='runs_message_sent_once')],
            },
        ),
        migrations.CreateModel(
            name='RunTag',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'tag', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('tag', models.TextField(db_collation='C')),
                ('created_at', models.DateTimeField(help_text="The run's.")),
            ],
            options={
                'indexes': [models.Index(fields=['tag', '-created_at', '-run_id'], name='runs_runtag_by_time')],
            },
        ),
        migrations.CreateModel(
            name='Served',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('worker', models.UUIDField()),
                ('graph_id', models.TextField()),
                ('is_quarantined', models.BooleanField(default=False)),
                ('is_draining', models.BooleanField(db_default=False, default=False, help_text='Continues existing runs of this version, but starts none.')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('worker', 'graph_id'), name='runs_served_once')],
            },
        ),
        migrations.CreateModel(
            name='Signal',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('n', models.IntegerField()),
                ('seq', models.BigIntegerField()),
                ('sender_id', models.TextField(help_text="Id given by the sender: a repetition with it is the same signal.", null=True)),
                ('taken_by', models.TextField(help_text='The slot of the call that received it.', null=True)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='signals', to='runs.run')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('run', 'name', 'n'), name='runs_signal_once'), models.UniqueConstraint(fields=('run', 'name', 'sender_id'), name='runs_signal_sent_once')],
            },
        ),
        migrations.CreateModel(
            name='Sweep',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Telling',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('lines', models.IntegerField(help_text='Number of stored lines.')),
                ('lost', models.BigIntegerField(help_text="Number of lines that were logged but dropped.")),
                ('seen', models.JSONField()),
                ('done', models.FloatField(null=True)),
                ('total', models.FloatField(null=True)),
                ('note', models.TextField()),
                ('at', models.DateTimeField(null=True)),
                ('since_epoch', models.BigIntegerField(help_text='Epoch since which progress is counted.', null=True)),
                ('since_at', models.DateTimeField(null=True)),
                ('since_done', models.FloatField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Wait',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('slot', models.TextField()),
                ('attempt', models.SmallIntegerField(default=0)),
                ('kind', models.TextField(choices=[('approval', 'Approval'), ('input', 'Input'), ('reconcile', 'Reconcile'), ('operator', 'Operator'), ('webhook', 'Webhook'), ('timer', 'Timer'), ('signal', 'Signal'), ('message', 'Message'), ('child', 'Child'), ('budget', 'Budget'), ('pool', 'Pool')])),
                ('n', models.SmallIntegerField(default=0)),
                ('opened_at', models.DateTimeField()),
                ('deadline', models.DateTimeField()),
                ('detail', models.JSONField(default=dict, help_text='Details for people and the API: short and unencrypted.')),
                ('token_hash', models.BinaryField(max_length=32, null=True, unique=True)),
                ('resolution', models.TextField(null=True)),
                ('resolved_by', models.TextField(null=True)),
                ('resolved_at', models.DateTimeField(null=True)),
                ('grant_hash', models.TextField(null=True)),
                ('grant_expires_at', models.DateTimeField(null=True)),
                ('consumed_at', models.DateTimeField(null=True)),
                ('is_overdue', models.BooleanField(default=False)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='waits', to='runs.run')),
                ('consumed_by', models.TextField(help_text='The slot of the call that used the approval.', null=True)),
                ('consumed_attempt', models.SmallIntegerField(help_text='The last attempt that used it.', null=True)),
                ('lacking', models.JSONField(help_text='For a wait for a budget: changes since it was opened, such as the amount that is missing now.', null=True)),
                ('also', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text="Further queues to which the approval was escalated.", null=True, size=None)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('is_overdue', False), ('resolved_at__isnull', True)), fields=['deadline'], name='runs_wait_due'), models.Index(condition=models.Q(('resolved_at__isnull', True)), fields=['run'], name='runs_wait_open'), models.Index(django.db.models.fields.json.KeyTextTransform('of', 'detail'), models.F('deadline'), models.F('id'), condition=models.Q(('kind', 'input'), ('resolved_at__isnull', True)), name='runs_wait_for_answer'), models.Index(condition=models.Q(('kind', 'input'), ('resolved_at__isnull', True)), fields=['deadline', 'id'], name='runs_wait_questions'), models.Index(condition=models.Q(('kind__in', ['reconcile', 'operator', 'budget']), ('resolved_at__isnull', True)), fields=['opened_at', 'id'], name='runs_wait_needs_operator'), models.Index(django.db.models.fields.json.KeyTextTransform('pool', 'detail'), models.F('opened_at'), models.F('id'), condition=models.Q(('kind', 'pool'), ('resolved_at__isnull', True)), name='runs_wait_for_pool'), models.Index(django.db.models.fields.json.KeyTextTransform('limit', 'detail'), models.F('deadline'), condition=models.Q(('detail__has_key', 'limit'), ('kind', 'timer'), ('resolved_at__isnull', True)), name='runs_wait_for_limit'), models.Index(condition=models.Q(('detail__has_key', 'undo'), ('kind', 'child'), ('resolved_at__isnull', True)), fields=['id'], name='runs_wait_to_reopen')],
                'constraints': [models.UniqueConstraint(fields=('run', 'slot', 'attempt', 'kind', 'n'), name='runs_wait_once')],
            },
        ),
        migrations.CreateModel(
            name='AgentCode',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('graph_id', models.TextField()),
                ('fingerprint', models.TextField()),
                ('parts', models.JSONField()),
                ('first_seen_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('graph_id', 'fingerprint'), name='runs_agentcode_once')],
            },
        ),
        migrations.RunSQL([STORAGE, UNLOGGED], migrations.RunSQL.noop),
    ]
