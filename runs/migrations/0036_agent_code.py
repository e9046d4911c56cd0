"""What each code of an agent version that ever drove runs was made of, by its fingerprint."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0034_undo")]
    operations = [
        migrations.CreateModel(
            name="AgentCode",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("graph_id", models.TextField()),
                ("fingerprint", models.TextField()),
                ("parts", models.JSONField()),
                ("first_seen_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("graph_id", "fingerprint"), name="runs_agentcode_once")
                ],
            },
        ),
    ]
