import django.db.models.deletion
import pgtrigger.compiler
from django.db import migrations, models

from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('approvals', '0002_encrypted_content'),
    ]

    operations = [
        AdoptModel(
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
                ('person', models.BigIntegerField(help_text='The account of the person who gave it.')),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
                ('approval', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='standing_grant', to='approvals.approval')),
            ],
            options={
                'db_table': 'approvals_standinggrant',
                'indexes': [models.Index(fields=['same', 'until'], name='approvals_grant_of_same'), models.Index(fields=['until'], name='approvals_grant_until'), models.Index(fields=['run_id'], name='approvals_grant_of_run'), models.Index(fields=['queue', '-at', '-id'], name='approvals_grant_of_queue')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b2b33175211fac9957efad72d5a6f7b3c6e92535', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_019da', table='approvals_standinggrant', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='bf4ba1323f5cd28a4374b96d718944876036d81c', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_c9018', table='approvals_standinggrant', when='BEFORE'))],
            },
        ),
        AdoptModel(
            name='StandingUse',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.IntegerField()),
                ('run_id', models.UUIDField()),
                ('amount', models.DecimalField(decimal_places=6, max_digits=36, null=True)),
                ('at', models.DateTimeField()),
                ('approval', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='standing_use', to='approvals.approval')),
                ('grant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='uses', to='standing_approvals.standinggrant')),
            ],
            options={
                'db_table': 'approvals_standinguse',
                'indexes': [models.Index(fields=['run_id'], name='approvals_use_of_run')],
                'constraints': [models.UniqueConstraint(fields=('grant', 'n'), name='approvals_use_once')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='d632a5d8629c48446aea97990832cdd42e0c344a', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_5aee7', table='approvals_standinguse', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='e504e567c1e8b4219a476de826c58929cddc135c', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_1af8a', table='approvals_standinguse', when='BEFORE'))],
            },
        ),
        AdoptModel(
            name='StandingEnd',
            fields=[
                ('code', models.BinaryField(null=True)),
                ('grant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='end', serialize=False, to='standing_approvals.standinggrant')),
                ('person', models.BigIntegerField(null=True)),
                ('by', models.TextField()),
                ('role', models.TextField()),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'approvals_standingend',
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='a961fda4fa6549b3a317d82654718052a60bb297', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_92a49', table='approvals_standingend', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='2e2c53d3d905a5f8a11d354b8715e0065e3e9fb9', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_2333b', table='approvals_standingend', when='BEFORE'))],
            },
        ),
    ]
