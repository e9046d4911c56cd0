"""How far events were exported, and the requests that started runs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    # For the index by which new events are found.
    dependencies = [("ledger", "0003_event_by_time")]

    operations = [
        migrations.CreateModel(
            name="Position",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="tracing_position_is_one")],
            },
        ),
        migrations.CreateModel(
            name="Origin",
            fields=[
                ("run_id", models.UUIDField(primary_key=True, serialize=False)),
                ("span_id", models.TextField()),
            ],
        ),
    ]
