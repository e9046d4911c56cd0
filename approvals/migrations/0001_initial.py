"""Tables of queues, approvals and decisions."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
import django_fsm
import pgtrigger.compiler
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('runs', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Queue',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('title', models.TextField()),
                ('role', models.TextField()),
                ('state', models.TextField(choices=[('open', 'Open'), ('closed', 'Closed'), ('removed', 'Removed')], default='open')),
                ('currency', models.TextField(default='USD', help_text='Of its limits.')),
                ('needs_amount', models.BooleanField(default=False, help_text='People with a limit may not decide requests without an amount.')),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('changed_at', models.DateTimeField()),
                ('proof', models.JSONField(help_text='Proof required to approve, and above which amount or risk; empty: none.', null=True)),
                ('reasons', models.JSONField(help_text='Short reasons offered to the people who decide; empty: none.', null=True)),
                ('again', models.JSONField(help_text='Limits of standing approvals; empty: none may be given.', null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(django.db.models.functions.text.Lower('name'), name='approvals_queue_one_of_name')],
            },
        ),
        migrations.CreateModel(
            name='Deputy',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('principal', models.BigIntegerField(help_text='The account that is represented.')),
                ('deputy', models.BigIntegerField(help_text='The account that decides.')),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('reason', models.TextField()),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(null=True)),
                ('revoked_by', models.TextField(blank=True, default='')),
                ('queue', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='deputies', to='approvals.queue')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('revoked_at__isnull', True)), fields=['deputy', 'ends_at'], name='approvals_deputy_of'), models.Index(condition=models.Q(('revoked_at__isnull', True)), fields=['principal', 'ends_at'], name='approvals_deputy_for')],
                'constraints': [models.UniqueConstraint(fields=('principal', 'made_at'), name='approvals_deputy_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."revoked_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='63c309b60fb93d65bef3e14a0f84c95361654935', operation='UPDATE', pgid='pgtrigger_stays_ended_811cc', table='approvals_deputy', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Limit',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('person', models.BigIntegerField(help_text="The account; empty: the limit of the role.", null=True)),
                ('most', models.DecimalField(decimal_places=6, help_text='Empty: no limit.', max_digits=24, null=True)),
                ('currency', models.TextField()),
                ('set_by', models.TextField()),
                ('set_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
                ('queue', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='limits', to='approvals.queue')),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('queue', 'person'), name='approvals_limit_one_of_person', nulls_distinct=False), models.UniqueConstraint(fields=('queue', 'person', 'set_at'), name='approvals_limit_once', nulls_distinct=False)],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='cef21487ee599217847b2281e64ab91d0814a370', operation='UPDATE', pgid='pgtrigger_stays_ended_3bfa2', table='approvals_limit', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('queue', models.TextField()),
                ('state', django_fsm.FSMField(choices=[('open', 'Open'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn'), ('amended', 'Amended')], default='open', max_length=50, protected=True)),
                ('revision', models.SmallIntegerField(default=1)),
                ('tool', models.TextField()),
                ('title', models.TextField()),
                ('effect', models.TextField(blank=True)),
                ('rule', models.TextField()),
                ('plan', models.BinaryField(help_text='Canonical JSON (RFC 8785): agent, version, run, slot, tool, arguments, evidence, queue, rule.')),
                ('plan_hash', models.TextField()),
                ('evidence', models.JSONField(default=list)),
                ('why', models.TextField(blank=True, help_text="The agent's own words. Untrusted.")),
                ('requested_by', models.TextField()),
                ('opened_at', models.DateTimeField()),
                ('deadline', models.DateTimeField()),
                ('decided_at', models.DateTimeField(null=True)),
                ('previous', models.OneToOneField(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='next', to='approvals.approval')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='approvals', to='runs.run')),
                ('wait', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='approval', to='runs.wait')),
                ('requester', models.BigIntegerField(help_text='The account of the requester: names can be changed.', null=True)),
                ('case_id', models.UUIDField(help_text="Approval of the first stage, if several people decide; empty if one person decides.", null=True)),
                ('escalated_to', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Further queues to which the approval was escalated.', null=True, size=None)),
                ('look_at', models.DateTimeField(help_text='Time of the next reminder or escalation before the deadline.', null=True)),
                ('reminded', models.SmallIntegerField(db_default=0, default=0)),
                ('reminded_at', models.DateTimeField(null=True)),
                ('timing', models.JSONField(help_text='The terms of the deadline: calendar, action at the deadline, and reminders.', null=True)),
                ('same', models.TextField(help_text='Digest to look up a standing approval by; whether it applies is checked against the plan.', null=True)),
                ('documents', models.JSONField(db_default=[], default=list, help_text='Documents shown with it, as named in the plan.')),
            ],
            options={
                'indexes': [models.Index(fields=['run', 'opened_at'], name='approvals_by_run'), models.Index(condition=models.Q(('state', 'open')), fields=['queue', 'deadline', 'id'], name='approvals_open_by_queue'), models.Index(condition=models.Q(('state', 'open')), fields=['deadline', 'id'], name='approvals_open_by_deadline'), models.Index(condition=models.Q(('state', 'open'), _negated=True), fields=['queue', '-decided_at', '-id'], name='approvals_decided_by_queue'), models.Index(condition=models.Q(('state', 'open'), _negated=True), fields=['-decided_at', '-id'], name='approvals_decided_by_time'), models.Index(fields=['-opened_at', '-id'], name='approvals_by_time'), models.Index(fields=['state', '-opened_at', '-id'], name='approvals_by_state'), models.Index(fields=['queue', 'state', '-opened_at', '-id'], name='approvals_by_queue_state'), models.Index(condition=models.Q(('look_at__isnull', False), ('state', 'open')), fields=['look_at'], name='approvals_to_look_at'), models.Index(condition=models.Q(('escalated_to__isnull', False), ('state', 'open')), fields=['deadline', 'id'], name='approvals_open_escalated'), models.Index(condition=models.Q(models.Q(('state', 'open'), _negated=True), ('escalated_to__isnull', False)), fields=['-decided_at', '-id'], name='approvals_decided_escalated'), models.Index(condition=models.Q(('same__isnull', False), ('state', 'open')), fields=['same'], name='approvals_open_same')],
                'triggers': [pgtrigger.compiler.Trigger(name='question_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."run_id" IS DISTINCT FROM (NEW."run_id") OR OLD."wait_id" IS DISTINCT FROM (NEW."wait_id") OR OLD."queue" IS DISTINCT FROM (NEW."queue") OR OLD."revision" IS DISTINCT FROM (NEW."revision") OR OLD."previous_id" IS DISTINCT FROM (NEW."previous_id") OR OLD."tool" IS DISTINCT FROM (NEW."tool") OR OLD."title" IS DISTINCT FROM (NEW."title") OR OLD."effect" IS DISTINCT FROM (NEW."effect") OR OLD."rule" IS DISTINCT FROM (NEW."rule") OR OLD."plan" IS DISTINCT FROM (NEW."plan") OR OLD."plan_hash" IS DISTINCT FROM (NEW."plan_hash") OR OLD."evidence" IS DISTINCT FROM (NEW."evidence") OR OLD."why" IS DISTINCT FROM (NEW."why") OR OLD."requested_by" IS DISTINCT FROM (NEW."requested_by") OR OLD."requester" IS DISTINCT FROM (NEW."requester") OR OLD."opened_at" IS DISTINCT FROM (NEW."opened_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='2c598e2b19674449a564fd7c10fd96da48862c42', operation='UPDATE', pgid='pgtrigger_question_is_frozen_01ef7', table='approvals_approval', when='BEFORE')), pgtrigger.compiler.Trigger(name='case_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."case_id" IS DISTINCT FROM (NEW."case_id"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='c76318eb32cad058fb5c799a844c1b9c4701c000', operation='UPDATE', pgid='pgtrigger_case_is_frozen_5f1d4', table='approvals_approval', when='BEFORE')), pgtrigger.compiler.Trigger(name='terms_are_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."timing" IS DISTINCT FROM (NEW."timing"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='19fa950cbe7658e8865608ec113d6a10ce0be085', operation='UPDATE', pgid='pgtrigger_terms_are_frozen_e74fc', table='approvals_approval', when='BEFORE')), pgtrigger.compiler.Trigger(name='legal_moves_only', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."state", \':\', NEW."state") = ANY(\'{open:amended,open:approved,open:expired,open:rejected,open:withdrawn,withdrawn:open}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."state" IS DISTINCT FROM NEW."state") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "state" from "%" to "%" on table %\', OLD."state", NEW."state", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='326c4a40220de1833f42ba56b52cd49415d6eadf', operation='UPDATE', pgid='pgtrigger_legal_moves_only_302a5', table='approvals_approval', when='BEFORE')), pgtrigger.compiler.Trigger(name='documents_are_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."documents" IS DISTINCT FROM (NEW."documents"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='0f85197993898daa64bace5aad992d0c76699814', operation='UPDATE', pgid='pgtrigger_documents_are_frozen_e949c', table='approvals_approval', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('verdict', models.TextField()),
                ('plan_hash', models.TextField()),
                ('justification', models.TextField()),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('auth', models.TextField()),
                ('address', models.TextField(blank=True)),
                ('at', models.DateTimeField()),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.approval')),
                ('after', models.JSONField(default=dict)),
                ('before', models.JSONField(default=dict)),
                ('chain', models.BinaryField(max_length=32, null=True)),
                ('person', models.BigIntegerField(null=True)),
                ('seq', models.BigIntegerField(help_text="The journal's last event when the person decided.", null=True)),
                ('code', models.BinaryField(null=True)),
                ('standing', models.JSONField(null=True)),
                ('closes', models.BooleanField(db_default=True, default=True)),
                ('proof', models.JSONField(help_text='The proof that the person gave, if the approval required one.', null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['-at', '-id'], name='approvals_decided_by_moment'), models.Index(fields=['verdict', '-at', '-id'], name='approvals_decided_by_verdict'), models.Index(fields=['by', '-at', '-id'], name='approvals_decided_by_who')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('closes', True)), fields=('approval',), name='approvals_decided_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='d7bfbe13cfe8daf3c42d7e2f56ce0935c59438c8', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_cd8c6', table='approvals_decision', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='b43159f78faecef912e8e3567efa433bfe88189f', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_d38f4', table='approvals_decision', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('n', models.IntegerField()),
                ('principal', models.BigIntegerField(help_text='The account that is represented.')),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('deputy', models.BigIntegerField(help_text='The account that decides.')),
                ('to', models.TextField(help_text='Its name then.')),
                ('reason', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(blank=True, default='')),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='delegations', to='approvals.approval')),
            ],
            options={
                'indexes': [models.Index(fields=['run_id'], name='approvals_delegation_of_run'), models.Index(fields=['deputy', '-made_at'], name='approvals_delegation_to')],
                'constraints': [models.UniqueConstraint(fields=('approval', 'n'), name='approvals_delegation_once'), models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('approval', 'principal', 'deputy'), name='approvals_delegation_one_of_two')],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b83f08e71910e22d9bf414098f200ff203170367', operation='UPDATE', pgid='pgtrigger_stays_ended_beb8a', table='approvals_delegation', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Escalation',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.SmallIntegerField()),
                ('run_id', models.UUIDField()),
                ('queue', models.TextField()),
                ('cause', models.TextField(help_text='timeout, or away: everybody who decides there was absent.')),
                ('deadline', models.DateTimeField()),
                ('at', models.DateTimeField()),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='escalations', to='approvals.approval')),
            ],
            options={
                'indexes': [models.Index(fields=['run_id'], name='approvals_escalated_of_run')],
                'constraints': [models.UniqueConstraint(fields=('approval', 'n'), name='approvals_escalated_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='60151240a0264e61d775fab4d0e83d23b6ea9995', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_e283b', table='approvals_escalation', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='6938a9592f17c8fcfbd2dad4c6d0054e5235c19c', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_82bb9', table='approvals_escalation', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Inquiry',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('n', models.IntegerField()),
                ('asker', models.BigIntegerField(help_text='The account that asks.')),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('person', models.BigIntegerField(help_text='The account that is asked.')),
                ('to', models.TextField(help_text='Its name then.')),
                ('question', models.TextField()),
                ('stops_clock', models.BooleanField(default=False)),
                ('at', models.DateTimeField()),
                ('outcome', models.TextField(blank=True, default='', help_text='answered, withdrawn; empty: it is open.')),
                ('answer', models.TextField(blank=True, default='')),
                ('ended_by', models.TextField(blank=True, default='')),
                ('ended_at', models.DateTimeField(null=True)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='inquiries', to='approvals.approval')),
            ],
            options={
                'verbose_name_plural': 'inquiries',
                'indexes': [models.Index(fields=['run_id'], name='approvals_inquiry_of_run'), models.Index(fields=['person', '-at'], name='approvals_inquiry_to')],
                'constraints': [models.UniqueConstraint(fields=('approval', 'n'), name='approvals_inquiry_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='stays_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b278cb834e5d3da34beea72a61624178025eb939', operation='UPDATE', pgid='pgtrigger_stays_ended_51eb7', table='approvals_inquiry', when='BEFORE'))],
            },
        ),
        migrations.CreateModel(
            name='Seat',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('case_id', models.UUIDField()),
                ('person', models.BigIntegerField()),
                ('decision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='seats', to='approvals.decision')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('case_id', 'person'), name='approvals_seat_one_each')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b93ba650ec5059eb0def30cc0378450160508803', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_afde0', table='approvals_seat', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='18ead34cae478be13ba66472c34fb6f78d4ab160', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_139d0', table='approvals_seat', when='BEFORE'))],
            },
        ),
    ]
