import pgtrigger.compiler
from django.db import migrations, models

from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('runs', '0003_protocol'),
    ]

    operations = [
        AdoptModel(
            name='Probe',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tool', models.TextField()),
                ('agent', models.TextField()),
                ('version', models.TextField()),
                ('made_of', models.TextField(help_text='Digest of the probed tool.')),
                ('verdict', models.TextField(choices=[('honours_keys', 'Honours'), ('ignores_keys', 'Ignores'), ('refuses_repeats', 'Refuses'), ('hook_denies', 'Hook Denies'), ('unclear', 'Unclear')])),
                ('told', models.TextField(help_text='Finding, in a few sentences.')),
                ('evidence', models.JSONField(help_text='Each call: its key, outcome, and the digest of its answer.')),
                ('evidence_digest', models.TextField()),
                ('by', models.TextField()),
                ('host', models.TextField()),
                ('at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('code', models.BinaryField(null=True)),
            ],
            options={
                'db_table': 'runs_probe',
                'indexes': [models.Index(fields=['tool', 'agent', 'made_of', '-id'], name='runs_probe_newest')],
                'constraints': [models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('at'))), name='runs_probe_ends_later')],
                'triggers': [pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='1d4bd481f7040d3c4a5a8b665d12e1dece3bc7d1', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_59f16', table='runs_probe', when='BEFORE')), pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='db38266a7dd301cc1a92246b488e045deb61b69e', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_31e4d', table='runs_probe', when='BEFORE'))],
            },
        ),
    ]
