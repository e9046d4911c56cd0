"""What of the open questions time concerns, and what went further. Built while the others go on writing."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0110_deadlines")]
    operations = [
        AddIndexConcurrently(
            model_name='approval',
            index=models.Index(condition=models.Q(('look_at__isnull', False), ('state', 'open')), fields=['look_at'], name='approvals_to_look_at'),
        ),
        AddIndexConcurrently(
            model_name='approval',
            index=models.Index(condition=models.Q(('escalated_to__isnull', False), ('state', 'open')), fields=['deadline', 'id'], name='approvals_open_escalated'),
        ),
        AddIndexConcurrently(
            model_name='approval',
            index=models.Index(condition=models.Q(models.Q(('state', 'open'), _negated=True), ('escalated_to__isnull', False)), fields=['-decided_at', '-id'], name='approvals_decided_escalated'),
        ),
    ]
