"""An absence knows the deputy that was named with it, which ends when it does."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0120_amended'),
    ]

    operations = [
        migrations.AddField(
            model_name='absence',
            name='deputy',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='absences', to='approvals.deputy'),
        ),
    ]
