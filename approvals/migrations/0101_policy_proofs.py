"""What the yes that a policy demands has to show. Empty for all that there are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0100_proofs"),
    ]

    operations = [
        migrations.AddField(
            model_name="policy",
            name="proof",
            field=models.JSONField(
                help_text="What such a yes has to show; empty: no more than the queue asks.", null=True
            ),
        ),
    ]
