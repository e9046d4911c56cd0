"""Runs that wait for their budget stand in the list of what needs an operator: its index holds them too."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0018_steps")]

    operations = [
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(
                condition=models.Q(("kind__in", ["reconcile", "operator", "budget"]), ("resolved_at__isnull", True)),
                fields=["opened_at", "id"],
                name="runs_wait_needs_operator",
            ),
        ),
        migrations.RemoveIndex(model_name="wait", name="runs_wait_for_operator"),
    ]
