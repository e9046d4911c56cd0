"""That the same again needs no further yes, and that nobody is told of what it answers: see
approvals/sql/0135_standing_grants.sql."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0135_standing_grants.sql")
UNDO = as_before(__file__, "0060_notices.sql", "approvals_on_gate")

class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0131_consulting'),
        ('runs', '0110_also'),
    ]

    operations = [
        migrations.CreateModel(
            name='StandingGrant',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(help_text='Where it was given.')),
                ('queue', models.TextField()),
                ('tool', models.TextField()),
                ('agent', models.TextField(help_text='Its name, whatever its version.')),
                ('is_of_run', models.BooleanField(help_text='It counts in that run alone.')),
                ('same', models.TextField()),
                ('fields', models.JSONField(help_text='The arguments that have to be the same.')),
                ('count', models.IntegerField()),
                ('most', models.DecimalField(decimal_places=6, help_text='Of all uses together.', max_digits=36, null=True)),
                ('currency', models.TextField(blank=True, default='')),
                ('until', models.DateTimeField()),
                ('person', models.BigIntegerField(help_text='The account of whoever gave it.')),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='StandingUse',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.IntegerField()),
                ('run_id', models.UUIDField()),
                ('amount', models.DecimalField(decimal_places=6, max_digits=36, null=True)),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='approval',
            name='same',
            field=models.TextField(help_text='By which a standing grant is found; what counts is the plan.', null=True),
        ),
        migrations.AddField(
            model_name='queue',
            name='again',
            field=models.JSONField(help_text='How far standing grants may go there; empty: none may be given.', null=True),
        ),
        migrations.CreateModel(
            name='StandingEnd',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('grant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='end', serialize=False, to='approvals.standinggrant')),
                ('person', models.BigIntegerField(null=True)),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='standinggrant',
            name='approval',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='standing_grant', to='approvals.approval'),
        ),
        migrations.AddField(
            model_name='standinguse',
            name='approval',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='standing_use', to='approvals.approval'),
        ),
        migrations.AddField(
            model_name='standinguse',
            name='grant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='uses', to='approvals.standinggrant'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='standingend',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='fcda120e66059898a2972731d9ebc7868374887e', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_3c75e', table='approvals_standingend', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='standingend',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='a06f93fa35c589665ce44556fcaa2494a417a6f4', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_fc2f9', table='approvals_standingend', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='standinggrant',
            index=models.Index(fields=['same', 'until'], name='approvals_grant_of_same'),
        ),
        migrations.AddIndex(
            model_name='standinggrant',
            index=models.Index(fields=['until'], name='approvals_grant_until'),
        ),
        migrations.AddIndex(
            model_name='standinggrant',
            index=models.Index(fields=['run_id'], name='approvals_grant_of_run'),
        ),
        migrations.AddIndex(
            model_name='standinggrant',
            index=models.Index(fields=['queue', '-at', '-id'], name='approvals_grant_of_queue'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='standinggrant',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='ee3a6f58582f1d36a1cdc77682526e8712ef7d71', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_ff8c7', table='approvals_standinggrant', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='standinggrant',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='6a3c68f6f602e555ced291f3c3fd826c614e692a', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_98bfd', table='approvals_standinggrant', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='standinguse',
            index=models.Index(fields=['run_id'], name='approvals_use_of_run'),
        ),
        migrations.AddConstraint(
            model_name='standinguse',
            constraint=models.UniqueConstraint(fields=('grant', 'n'), name='approvals_use_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='standinguse',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='e90986f6d49e459afe7463ff919ed38764264bc5', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_b26d4', table='approvals_standinguse', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='standinguse',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='0bbdf79e302498feb883123e322594b97f42abad', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_b4bc4', table='approvals_standinguse', when='BEFORE')),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
