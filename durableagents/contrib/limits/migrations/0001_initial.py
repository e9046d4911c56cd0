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
            name='SharedBudget',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('scope', models.TextField(choices=[('all', 'All'), ('tag', 'Tag'), ('agent', 'Agent'), ('person', 'Person'), ('provider', 'Provider')])),
                ('of', models.TextField(blank=True, default='', help_text="The tag, agent, account id or provider; empty for the scope all.")),
                ('resource', models.TextField(choices=[('usd_micro', 'Usd'), ('tokens_in', 'Tokens In'), ('tokens_out', 'Tokens Out'), ('model_calls', 'Model Calls'), ('tool_calls', 'Tool Calls')])),
                ('period', models.TextField(choices=[('day', 'Day'), ('week', 'Week'), ('month', 'Month')])),
                ('zone', models.TextField(default='UTC')),
                ('set_by', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('off_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'runs_pool',
                'constraints': [models.UniqueConstraint(condition=models.Q(('off_at__isnull', True)), fields=('name',), name='runs_pool_one_of_name'), models.UniqueConstraint(condition=models.Q(('off_at__isnull', True)), fields=('scope', 'of', 'resource', 'period', 'zone'), name='runs_pool_one_of_kind')],
            },
        ),
        AdoptModel(
            name='BudgetMeter',
            fields=[
                ('budget', models.OneToOneField(db_column='pool_id', on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='meter', serialize=False, to='limits.sharedbudget')),
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
                ('gate_at', models.DateTimeField(help_text='Time since which calls wait; new calls queue behind them.', null=True)),
                ('promised', models.BigIntegerField(default=0, help_text='Admitted a moment ago, so the call may not have begun.')),
                ('promised_at', models.DateTimeField(null=True)),
                ('is_untold', models.BooleanField(default=False, help_text='A notice has not been logged yet.')),
            ],
            options={
                'db_table': 'runs_poolmeter',
                'constraints': [models.CheckConstraint(condition=models.Q(('most__gte', 0), ('reserved__gte', 0), ('used__gte', 0)), name='runs_poolmeter_not_negative')],
            },
        ),
        AdoptModel(
            name='BudgetPeriod',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('most', models.BigIntegerField()),
                ('used', models.BigIntegerField()),
                ('reserved', models.BigIntegerField()),
                ('budget', models.ForeignKey(db_column='pool_id', on_delete=django.db.models.deletion.PROTECT, related_name='periods', to='limits.sharedbudget')),
            ],
            options={
                'db_table': 'runs_poolperiod',
                'constraints': [models.UniqueConstraint(fields=('budget', 'starts_at'), name='runs_poolperiod_once'), models.CheckConstraint(condition=models.Q(('reserved__gte', 0), ('used__gte', 0)), name='runs_poolperiod_not_negative')],
            },
        ),
        AdoptModel(
            name='BudgetCharge',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'slot', 'attempt', 'n', 'budget_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('slot', models.TextField()),
                ('attempt', models.SmallIntegerField()),
                ('n', models.IntegerField()),
                ('budget_id', models.BigIntegerField(db_column='pool_id')),
                ('starts_at', models.DateTimeField()),
                ('reserved', models.BigIntegerField()),
                ('used', models.BigIntegerField(null=True)),
            ],
            options={
                'db_table': 'runs_poolcharge',
                'indexes': [models.Index(fields=['budget_id', 'starts_at'], name='runs_poolcharge_of_period')],
            },
        ),
        AdoptModel(
            name='BudgetNotice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('starts_at', models.DateTimeField()),
                ('kind', models.TextField(choices=[('warning', 'Warning'), ('breach', 'Breach')])),
                ('at', models.DateTimeField()),
                ('most', models.BigIntegerField()),
                ('used', models.BigIntegerField()),
                ('reserved', models.BigIntegerField()),
                ('budget', models.ForeignKey(db_column='pool_id', on_delete=django.db.models.deletion.PROTECT, related_name='notices', to='limits.sharedbudget')),
            ],
            options={
                'db_table': 'runs_poolnotice',
                'constraints': [models.UniqueConstraint(fields=('budget', 'starts_at', 'kind'), name='runs_poolnotice_once')],
                'triggers': append_only_triggers('limits.BudgetNotice', 'runs_poolnotice'),
            },
        ),
        AdoptModel(
            name='Limit',
            fields=[
                ('key', models.TextField(primary_key=True, serialize=False)),
                ('given', models.JSONField(help_text='Rule set by a person; null: none.', null=True)),
                ('given_by', models.TextField(blank=True, db_default='', default='')),
                ('given_at', models.DateTimeField(null=True)),
                ('declared', models.JSONField(help_text="Rule of the installation's settings.", null=True)),
                ('of_tool', models.JSONField(help_text="Rule in the tool's own code.", null=True)),
                ('tokens', models.FloatField(db_default=0.0, default=0.0)),
                ('filled_at', models.DateTimeField(null=True)),
                ('held_until', models.DateTimeField(help_text='Time until which the upstream system asked for a pause.', null=True)),
                ('parked_until', models.DateTimeField(help_text='Time when the last parked call is due.', null=True)),
                ('breaker', models.TextField(choices=[('closed', 'Closed'), ('open', 'Open')], db_default='closed', default='closed')),
                ('is_by_hand', models.BooleanField(db_default=False, default=False)),
                ('opened_at', models.DateTimeField(null=True)),
                ('rest_until', models.DateTimeField(help_text='Time from which single attempts test the upstream system; null: none.', null=True)),
                ('openings', models.IntegerField(db_default=0, default=0)),
                ('window_at', models.DateTimeField(null=True)),
                ('ok', models.IntegerField(db_default=0, default=0)),
                ('failed', models.IntegerField(db_default=0, default=0)),
                ('ok_before', models.IntegerField(db_default=0, default=0)),
                ('failed_before', models.IntegerField(db_default=0, default=0)),
                ('last_error', models.TextField(blank=True, db_default='', default='')),
                ('last_error_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'runs_limit',
                'indexes': [models.Index(condition=models.Q(('key__endswith', '*')), fields=['key'], name='runs_limit_pattern')],
            },
        ),
        AdoptModel(
            name='Permit',
            fields=[
                ('pk', models.CompositePrimaryKey('id', 'key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('id', models.UUIDField()),
                ('key', models.TextField()),
                ('worker', models.UUIDField()),
                ('run_id', models.UUIDField()),
                ('slot', models.TextField()),
                ('taken_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('is_probe', models.BooleanField(db_default=False, default=False)),
            ],
            options={
                'db_table': 'runs_permit',
                'indexes': [models.Index(fields=['key'], name='runs_permit_of_key')],
            },
        ),
        AdoptModel(
            name='LimitLine',
            fields=[
                ('pk', models.CompositePrimaryKey('key', 'worker', blank=True, editable=False, primary_key=True, serialize=False)),
                ('key', models.TextField()),
                ('worker', models.UUIDField()),
                ('since', models.DateTimeField()),
                ('seen_until', models.DateTimeField()),
                ('waiting', models.IntegerField(default=1)),
            ],
            options={
                'db_table': 'runs_limitline',
            },
        ),
    ]
