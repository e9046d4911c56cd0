"""Workers that drain a version: see runs/sql/0039_drains.sql."""

import django.db.models.expressions
from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0039_drains.sql")
UNDO = as_before(__file__, "0028_shares.sql", "runs_claim") + as_before(__file__, "0014_starts.sql", "runs_call")


class Migration(migrations.Migration):
    dependencies = [("runs", "0038_releases")]
    operations = [
        migrations.AddIndex(
            model_name='run',
            index=models.Index(models.F('graph_id'), models.F('is_solo'), models.F('lane'), django.db.models.expressions.CombinedExpression(models.F('priority'), '*', models.Value(-1)), models.F('ready_at'), condition=models.Q(('ready_at__isnull', False), models.Q(models.Q(('state', 'pending'), _negated=True), ('came_from__isnull', False), ('parent__isnull', False), _connector='OR')), name='runs_run_wanted_begun'),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
