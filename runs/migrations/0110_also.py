"""To whom a question was put besides, because nobody answered: beside its wait, for whoever asks who may act."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0080_bulk'),
    ]

    operations = [
        migrations.AddField(
            model_name='wait',
            name='also',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text="Queues that nobody's answer in time put it to besides.", null=True, size=None),
        ),
    ]
