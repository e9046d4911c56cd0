import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("ledger", "0004_codes"),
    ]

    operations = [
        migrations.CreateModel(
            name='AccountRecord',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('action', models.TextField()),
                ('subject', models.TextField(help_text='`user:ada`, `role:operator` or `key:ada/laptop`, as it was called then.')),
                ('subject_person', models.BigIntegerField(null=True)),
                ('by', models.TextField(help_text='Who said so, or `database:ROLE` for what came past the application.')),
                ('person', models.BigIntegerField(null=True)),
                ('auth', models.TextField(blank=True)),
                ('address', models.TextField(blank=True)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='ActRecord',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(null=True)),
                ('action', models.TextField()),
                ('subject', models.TextField(blank=True, help_text="What it was done to, where that isn't the run: a question, a signal, a host.")),
                ('queue', models.TextField(blank=True, help_text='Whom a question was put to: a queue or a role.')),
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
            ],
        ),
        migrations.RemoveIndex(
            model_name='overriderecord',
            name='ledger_override_by_time',
        ),
        migrations.AddField(
            model_name='overriderecord',
            name='person',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddIndex(
            model_name='overriderecord',
            index=models.Index(fields=['-at', '-id'], name='ledger_override_by_moment'),
        ),
        migrations.AddIndex(
            model_name='overriderecord',
            index=models.Index(fields=['action', '-at', '-id'], name='ledger_override_by_action'),
        ),
        migrations.AddIndex(
            model_name='overriderecord',
            index=models.Index(fields=['by', '-at', '-id'], name='ledger_override_by_who'),
        ),
        migrations.AddIndex(
            model_name='accountrecord',
            index=models.Index(fields=['-at', '-id'], name='ledger_account_by_moment'),
        ),
        migrations.AddIndex(
            model_name='accountrecord',
            index=models.Index(fields=['action', '-at', '-id'], name='ledger_account_by_action'),
        ),
        migrations.AddIndex(
            model_name='accountrecord',
            index=models.Index(fields=['by', '-at', '-id'], name='ledger_account_by_who'),
        ),
        migrations.AddIndex(
            model_name='accountrecord',
            index=models.Index(fields=['subject_person'], name='ledger_account_by_subject'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='accountrecord',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='4ab6897fe6d92b40942578737ebabbfb6186df45', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_5d065', table='ledger_accountrecord', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='accountrecord',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='ef574a2118ced6ef0382b8ea35db743821fb5544', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_7a151', table='ledger_accountrecord', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='actrecord',
            index=models.Index(fields=['run_id', 'id'], name='ledger_act_by_run'),
        ),
        migrations.AddIndex(
            model_name='actrecord',
            index=models.Index(fields=['-at', '-id'], name='ledger_act_by_moment'),
        ),
        migrations.AddIndex(
            model_name='actrecord',
            index=models.Index(fields=['action', '-at', '-id'], name='ledger_act_by_action'),
        ),
        migrations.AddIndex(
            model_name='actrecord',
            index=models.Index(fields=['by', '-at', '-id'], name='ledger_act_by_who'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='actrecord',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='ca4df81695ae4ed2ca43194f5fe289c1ae8d5744', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_26ea0', table='ledger_actrecord', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='actrecord',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='36e8ae4d3b9209d70d13b95392ed837bf678653b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_bbe02', table='ledger_actrecord', when='BEFORE')),
        ),
    ]
