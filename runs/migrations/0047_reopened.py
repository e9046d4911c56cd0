"""A child that ended well is reopened where its parent undoes its effects: `completed` to `compensating`, and the waits for
that are found by an index."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0045_forks'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='run',
            name='legal_moves_only',
        ),
        migrations.AddIndex(
            model_name='wait',
            index=models.Index(condition=models.Q(('detail__has_key', 'undo'), ('kind', 'child'), ('resolved_at__isnull', True)), fields=['id'], name='runs_wait_to_reopen'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='run',
            trigger=pgtrigger.compiler.Trigger(name='legal_moves_only', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."state", \':\', NEW."state") = ANY(\'{compensating:cancelled,compensating:failed,compensating:paused,compensating:waiting_event,compensating:waiting_human,compensating:waiting_tool,completed:compensating,failed:running,paused:cancelled,paused:compensating,paused:failed,paused:pending,paused:running,paused:waiting_event,paused:waiting_human,paused:waiting_tool,pending:cancelled,pending:failed,pending:paused,pending:running,pending:waiting_human,running:cancelled,running:compensating,running:completed,running:failed,running:paused,running:waiting_event,running:waiting_human,running:waiting_tool,waiting_event:cancelled,waiting_event:compensating,waiting_event:paused,waiting_event:running,waiting_human:cancelled,waiting_human:compensating,waiting_human:failed,waiting_human:paused,waiting_human:running,waiting_tool:cancelled,waiting_tool:compensating,waiting_tool:paused,waiting_tool:running}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."state" IS DISTINCT FROM NEW."state") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "state" from "%" to "%" on table %\', OLD."state", NEW."state", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='725a1ca5505c0d9d31724c3f1a1602058fcc6eaa', operation='UPDATE', pgid='pgtrigger_legal_moves_only_c1fe5', table='runs_run', when='BEFORE')),
        ),
    ]
