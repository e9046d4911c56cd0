"""Acts on many runs as they were looked at: the call that each verdict is on, a receipt for as long as it is of use, and an
end that stands."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0121_stood_in_its_version'),
    ]

    operations = [
        migrations.AddField(
            model_name='batch',
            name='receipt',
            field=models.JSONField(help_text='What happened, of a reconcile: until it is over.', null=True),
        ),
        migrations.AddField(
            model_name='batchitem',
            name='wait_id',
            field=models.UUIDField(help_text='Of a reconcile: the one unknown outcome that it had then.', null=True),
        ),
        migrations.AlterField(
            model_name='batch',
            name='said',
            field=models.JSONField(default=dict, help_text='What the act says besides its reason; of a receipt its digest.'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='batch',
            trigger=pgtrigger.compiler.Trigger(name='is_over_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."ended_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='2a8d02177ab29c66962acd95ae28f8ef92f53c48', operation='UPDATE', pgid='pgtrigger_is_over_once_2593f', table='runs_batch', when='BEFORE')),
        ),
    ]
