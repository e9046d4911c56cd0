"""A run may undo its effects before it ends: see runs/sql/0034_undo.sql."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0034_undo.sql")
UNDO = (
    as_before(__file__, "0026_pools.sql", "runs_draw")
    + "DROP TRIGGER keeps_undoing ON runs_run; DROP FUNCTION runs_keep_undoing();"
)


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0033_limit_patterns'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='run',
            name='legal_moves_only',
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='run',
            trigger=pgtrigger.compiler.Trigger(name='legal_moves_only', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."state", \':\', NEW."state") = ANY(\'{compensating:cancelled,compensating:failed,compensating:paused,compensating:waiting_event,compensating:waiting_human,compensating:waiting_tool,failed:running,paused:cancelled,paused:compensating,paused:failed,paused:pending,paused:running,paused:waiting_event,paused:waiting_human,paused:waiting_tool,pending:cancelled,pending:failed,pending:paused,pending:running,pending:waiting_human,running:cancelled,running:compensating,running:completed,running:failed,running:paused,running:waiting_event,running:waiting_human,running:waiting_tool,waiting_event:cancelled,waiting_event:compensating,waiting_event:paused,waiting_event:running,waiting_human:cancelled,waiting_human:compensating,waiting_human:failed,waiting_human:paused,waiting_human:running,waiting_tool:cancelled,waiting_tool:compensating,waiting_tool:paused,waiting_tool:running}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."state" IS DISTINCT FROM NEW."state") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "state" from "%" to "%" on table %\', OLD."state", NEW."state", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='6a74b6bc280c134bc0c298453cba5ee17a9da905', operation='UPDATE', pgid='pgtrigger_legal_moves_only_c1fe5', table='runs_run', when='BEFORE')),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
