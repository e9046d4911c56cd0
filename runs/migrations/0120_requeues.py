"""A worker can be asked to let go of what it has, and a run that was given back to the pool was lost by its worker."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0110_also")]

    operations = [
        migrations.AddField(
            model_name="process",
            name="drain_asked_at",
            field=models.DateTimeField(
                help_text="When an operator asked it to let go of what it has and to end: workers only.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="incident",
            name="cause",
            field=models.TextField(
                choices=[
                    ("proof", "Proof"),
                    ("suspicion", "Suspicion"),
                    ("host_gone", "Host Gone"),
                    ("operator", "Operator"),
                    ("drain_cut", "Drain Cut"),
                    ("requeued", "Requeued"),
                ]
            ),
        ),
    ]
