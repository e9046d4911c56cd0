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
                'triggers': append_only_triggers('certify.Probe', 'runs_probe'),
            },
        ),
    ]
