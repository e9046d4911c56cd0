"""Pools: budgets that many runs share (runs/sql/0026_pools.sql), and the steps that draw on them and settle it."""

import django.db.models.deletion
import django.db.models.fields.json
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0026_pools.sql")
DROPPED = (
    "runs_open_gate(bigint, bigint, uuid[], int)",
    "runs_gate(jsonb)",
    "runs_pool_wanted(jsonb)",
    "runs_settle_rest(uuid)",
    "runs_settle(uuid, ledger_line)",
    "runs_settle_charge(runs_poolcharge, bigint)",
    "runs_draw(uuid, ledger_line[])",
    "runs_pool_amount(text, text, json)",
    "runs_pool_notice(runs_poolmeter, text)",
    "runs_turn_pools()",
    "runs_pool_turn(runs_poolmeter)",
    "runs_is_pooled(uuid)",
    "runs_pools_of(uuid, text)",
    "runs_pool_period(text, text, timestamptz)",
)
UNDO = "\n".join(
    (as_before(__file__, "0018_steps.sql", "runs_intend", "runs_record"), *(f"DROP FUNCTION {name};" for name in DROPPED))
)


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0025_schedules'),
    ]

    operations = [
        migrations.CreateModel(
            name='Pool',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('scope', models.TextField(choices=[('all', 'All'), ('tag', 'Tag'), ('agent', 'Agent'), ('person', 'Person'), ('provider', 'Provider')])),
                ('of', models.TextField(blank=True, default='', help_text="The tag, agent, account's key or provider; of all: empty.")),
                ('resource', models.TextField(choices=[('usd_micro', 'Usd'), ('tokens_in', 'Tokens In'), ('tokens_out', 'Tokens Out'), ('model_calls', 'Model Calls'), ('tool_calls', 'Tool Calls')])),
                ('period', models.TextField(choices=[('day', 'Day'), ('week', 'Week'), ('month', 'Month')])),
                ('zone', models.TextField(default='UTC')),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('off_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PoolCharge',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'slot', 'attempt', 'n', 'pool_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('slot', models.TextField()),
                ('attempt', models.SmallIntegerField()),
                ('n', models.IntegerField()),
                ('pool_id', models.BigIntegerField()),
                ('starts_at', models.DateTimeField()),
                ('reserved', models.BigIntegerField()),
                ('used', models.BigIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PoolNotice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('starts_at', models.DateTimeField()),
                ('kind', models.TextField(choices=[('warning', 'Warning'), ('breach', 'Breach')])),
                ('at', models.DateTimeField()),
                ('most', models.BigIntegerField()),
                ('used', models.BigIntegerField()),
                ('reserved', models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='PoolPeriod',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('most', models.BigIntegerField()),
                ('used', models.BigIntegerField()),
                ('reserved', models.BigIntegerField()),
            ],
        ),
        migrations.AlterField(
            model_name='wait',
            name='kind',
            field=models.TextField(choices=[('approval', 'Approval'), ('input', 'Input'), ('reconcile', 'Reconcile'), ('operator', 'Operator'), ('webhook', 'Webhook'), ('timer', 'Timer'), ('signal', 'Signal'), ('message', 'Message'), ('child', 'Child'), ('budget', 'Budget'), ('pool', 'Pool')]),
        ),
        migrations.AddIndex(
            model_name='wait',
            index=models.Index(django.db.models.fields.json.KeyTextTransform('pool', 'detail'), models.F('opened_at'), models.F('id'), condition=models.Q(('kind', 'pool'), ('resolved_at__isnull', True)), name='runs_wait_for_pool'),
        ),
        migrations.CreateModel(
            name='PoolMeter',
            fields=[
                ('pool', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='meter', serialize=False, to='runs.pool')),
                ('resource', models.TextField()),
                ('period', models.TextField()),
                ('zone', models.TextField()),
                ('most', models.BigIntegerField()),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('used', models.BigIntegerField(default=0)),
                ('reserved', models.BigIntegerField(default=0)),
                ('is_on', models.BooleanField(default=True)),
                ('warned_at', models.DateTimeField(null=True)),
                ('gate_at', models.DateTimeField(help_text='Since then calls wait for it, and new ones behind them.', null=True)),
                ('promised', models.BigIntegerField(default=0, help_text='What was let in a moment ago, and may not have begun yet.')),
                ('promised_at', models.DateTimeField(null=True)),
                ('is_untold', models.BooleanField(default=False, help_text='A notice of it has not been logged yet.')),
            ],
        ),
        migrations.AddConstraint(
            model_name='pool',
            constraint=models.UniqueConstraint(condition=models.Q(('off_at__isnull', True)), fields=('name',), name='runs_pool_one_of_name'),
        ),
        migrations.AddConstraint(
            model_name='pool',
            constraint=models.UniqueConstraint(condition=models.Q(('off_at__isnull', True)), fields=('scope', 'of', 'resource', 'period', 'zone'), name='runs_pool_one_of_kind'),
        ),
        migrations.AddField(
            model_name='poolnotice',
            name='pool',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='notices', to='runs.pool'),
        ),
        migrations.AddField(
            model_name='poolperiod',
            name='pool',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='periods', to='runs.pool'),
        ),
        migrations.AddConstraint(
            model_name='poolmeter',
            constraint=models.CheckConstraint(condition=models.Q(('most__gte', 0), ('reserved__gte', 0), ('used__gte', 0)), name='runs_poolmeter_not_negative'),
        ),
        migrations.AddIndex(
            model_name='poolcharge',
            index=models.Index(fields=['pool_id', 'starts_at'], name='runs_poolcharge_of_period'),
        ),
        migrations.AddConstraint(
            model_name='poolnotice',
            constraint=models.UniqueConstraint(fields=('pool', 'starts_at', 'kind'), name='runs_poolnotice_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='poolnotice',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='98995821d2b2f2317797094fd59b223b99fcbb8e', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_534c8', table='runs_poolnotice', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='poolnotice',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='62df69705fd088db936570a62661708341583b3c', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_1af9a', table='runs_poolnotice', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='poolperiod',
            constraint=models.UniqueConstraint(fields=('pool', 'starts_at'), name='runs_poolperiod_once'),
        ),
        migrations.AddConstraint(
            model_name='poolperiod',
            constraint=models.CheckConstraint(condition=models.Q(('reserved__gte', 0), ('used__gte', 0)), name='runs_poolperiod_not_negative'),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
