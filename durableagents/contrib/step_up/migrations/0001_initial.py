"""Passkeys' signatures of decisions."""

import django.db.models.deletion
from django.db import migrations, models

from ledger.migration_operations import AdoptModel, append_only_triggers


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
                ('person', models.BigIntegerField(help_text='The account that the passkey belongs to.')),
                ('challenge', models.BinaryField(max_length=32, unique=True)),
                ('terms', models.JSONField(help_text='Signed values: question, revision, plan, verdict, person, number, time.')),
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
                'triggers': append_only_triggers('step_up.Assertion', 'approvals_assertion'),
            },
        ),
    ]
