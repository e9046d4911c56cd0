"""By which a standing grant finds what is open and the same. Built while the others go on writing."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0135_standing_grants")]
    operations = [
        AddIndexConcurrently(
            model_name='approval',
            index=models.Index(condition=models.Q(('same__isnull', False), ('state', 'open')), fields=['same'], name='approvals_open_same'),
        ),
    ]
