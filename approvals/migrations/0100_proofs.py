"""What a yes has to show: as a queue asks it, and as a decision's person showed it. Empty for all that there is."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("approvals", "0060_notices"),
    ]

    operations = [
        migrations.AddField(
            model_name="queue",
            name="proof",
            field=models.JSONField(help_text="What a yes has to show, and from where on; empty: no more.", null=True),
        ),
        migrations.AddField(
            model_name="decision",
            name="proof",
            field=models.JSONField(
                help_text="What its person showed, where more was asked than a yes.", null=True
            ),
        ),
    ]
