"""The most that an API key may give to a run."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("durableagents", "0006_masterkey")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="budget",
            field=models.JSONField(
                blank=True,
                help_text='The most that it may give to a run: {"usd": "5.00", "steps": 200}. Empty: as much as it likes.',
                null=True,
            ),
        ),
    ]
