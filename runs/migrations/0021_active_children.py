"""Children that are at work have an index of their own: among a million that have ended they are few. And a wait for a
budget says what is lacking since caps were set."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0020_children")]
    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True), ("parent__isnull", False)),
                fields=["parent", "id"],
                name="runs_run_children_active",
            ),
        ),
        migrations.AddField(
            model_name="wait",
            name="lacking",
            field=models.JSONField(
                help_text="Of a wait for a budget: what has changed about it since, such as what is lacking now.",
                null=True,
            ),
        ),
    ]
