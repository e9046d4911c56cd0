"""Passkeys' signatures of decisions."""

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
            name='Assertion',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('person', models.BigIntegerField(help_text='The account whose passkey it is.')),
                ('challenge', models.BinaryField(max_length=32, unique=True)),
                ('terms', models.JSONField(help_text='What was signed: question, revision, plan, verdict, person, number, time.')),
                ('rp_id', models.TextField()),
                ('origin', models.TextField()),
                ('credential', models.TextField()),
                ('public_key', models.BinaryField()),
                ('authenticator_data', models.BinaryField()),
                ('client_data', models.BinaryField()),
                ('signature', models.BinaryField()),
                ('decision', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='assertion', to='approvals.decision')),
            ],
            options={
                'db_table': 'approvals_assertion',
                'indexes': [models.Index(fields=['run_id'], name='approvals_assertion_of')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='7d4cc65e8bfb2525722ce0037d40834c7b1a8c8b', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_93dc2', table='approvals_assertion', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='339414acfcaa7f7214073b14ada1d63aee9f5f20', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_fd027', table='approvals_assertion', when='BEFORE'))],
            },
        ),
    ]
