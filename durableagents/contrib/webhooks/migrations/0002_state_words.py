from __future__ import annotations

from django.db import migrations, models

RENAME = """
    UPDATE webhooks_message SET state = CASE state WHEN 'dead' THEN 'failed' ELSE 'not_sent_any_more' END
    WHERE state IN ('dead', 'needless')"""


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="message",
            name="state",
            field=models.TextField(
                choices=[
                    ("waiting", "waiting"),
                    ("sending", "sending"),
                    ("sent", "sent"),
                    ("failed", "failed"),
                    ("not_sent_any_more", "no longer sent"),
                ],
                default="waiting",
            ),
        ),
        migrations.RunSQL(RENAME, migrations.RunSQL.noop),
    ]
