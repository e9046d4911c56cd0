"""What was seen of the other sides of keyed tools: rows are added, never changed."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0039_drains'),
    ]

    operations = [
        migrations.CreateModel(
            name='Probe',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tool', models.TextField()),
                ('agent', models.TextField()),
                ('version', models.TextField()),
                ('made_of', models.TextField(help_text='The digest of the tool that was probed.')),
                ('verdict', models.TextField(choices=[('honours_keys', 'Honours'), ('ignores_keys', 'Ignores'), ('refuses_repeats', 'Refuses'), ('hook_denies', 'Hook Denies'), ('unclear', 'Unclear')])),
                ('told', models.TextField(help_text='What was seen, in a few sentences.')),
                ('evidence', models.JSONField(help_text='Each call: its key, what came of it, and the digest of its answer.')),
                ('evidence_digest', models.TextField()),
                ('by', models.TextField()),
                ('host', models.TextField()),
                ('at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('code', models.BinaryField()),
            ],
            options={
                'indexes': [models.Index(fields=['tool', 'agent', 'made_of', '-id'], name='runs_probe_newest')],
                'constraints': [models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('at'))), name='runs_probe_ends_later')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='probe',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='8c5ca282b11519563aec370f79e4e4432c3185a2', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_35dcd', table='runs_probe', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='probe',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;", hash='7a77bd5fee47c2d8906f813bc870c893bb051f96', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_8f0b4', table='runs_probe', when='BEFORE')),
        ),
    ]
