
import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('retention', '0001_initial'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='archive',
            index=models.Index(condition=models.Q(('business_key__gt', '')), fields=['business_key', '-created_at', '-run_id'], name='retention_archive_key'),
        ),
        migrations.AddIndex(
            model_name='archive',
            index=django.contrib.postgres.indexes.GinIndex(fields=['tags'], name='retention_archive_tags', opclasses=['jsonb_path_ops']),
        ),
    ]
