"""Of which run a run is a fork."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0043_migrated'),
    ]

    operations = [
        migrations.AddField(
            model_name='run',
            name='fork_how',
            field=models.TextField(blank=True, db_default='', default='', help_text='fork, what_if, start_again.'),
        ),
        migrations.AddField(
            model_name='run',
            name='forked_from',
            field=models.UUIDField(help_text='The run that it began again from.', null=True),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('forked_from__isnull', False)), fields=['forked_from', '-created_at'], name='runs_run_forks'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='run',
            trigger=pgtrigger.compiler.Trigger(name='fork_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.forked_from IS NOT NULL AND (NEW.forked_from, NEW.fork_how) IS DISTINCT FROM (OLD.forked_from, OLD.fork_how))', func="RAISE EXCEPTION 'of which run a run is a fork never changes: run %', OLD.id;", hash='8b49e88211dac590b7f4a39a1d226341fc1bdf4f', operation='UPDATE OF "forked_from", "fork_how"', pgid='pgtrigger_fork_is_frozen_607f1', table='runs_run', when='BEFORE')),
        ),
    ]
