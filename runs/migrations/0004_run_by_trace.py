
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0003_protocol'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='run',
            index=models.Index(fields=['trace_id'], name='runs_run_by_trace'),
        ),
    ]
