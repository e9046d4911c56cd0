"""Messages with an answer, and nodes that wait for them: see runs/sql/0023_messages.sql."""

import django.db.models.deletion
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0023_messages.sql")
UNDO = """
DROP FUNCTION runs_end_messages(uuid);
DROP FUNCTION runs_park(uuid, bigint, uuid, text, text, uuid[], text, ledger_line[]);
DROP FUNCTION runs_answer_message(uuid, bigint, uuid, text, ledger_line[], int, text, uuid[]);
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0022_attributes")]
    operations = [
        migrations.AlterField(
            model_name="wait",
            name="kind",
            field=models.TextField(
                choices=[
                    ("approval", "Approval"),
                    ("input", "Input"),
                    ("reconcile", "Reconcile"),
                    ("operator", "Operator"),
                    ("webhook", "Webhook"),
                    ("timer", "Timer"),
                    ("signal", "Signal"),
                    ("message", "Message"),
                    ("child", "Child"),
                    ("budget", "Budget"),
                ]
            ),
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("n", models.IntegerField(help_text="Its place among the run's messages, from 1.")),
                ("name", models.TextField()),
                ("by", models.TextField(help_text="Who sent it.")),
                (
                    "sender_id",
                    models.TextField(help_text="The sender's own name for it: a repeat is the same message.", null=True),
                ),
                ("seq", models.BigIntegerField(help_text="The event of its coming.")),
                (
                    "outcome",
                    models.TextField(
                        blank=True,
                        choices=[
                            ("", "waiting"),
                            ("answered", "Answered"),
                            ("refused", "Refused"),
                            ("failed", "Failed"),
                            ("ended", "Ended"),
                        ],
                        db_default="",
                        default="",
                    ),
                ),
                ("answered_seq", models.BigIntegerField(help_text="The event of its answer.", null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="messages", to="runs.run"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("outcome", "")), fields=["run", "n"], name="runs_message_unanswered"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("run", "n"), name="runs_message_once"),
                    models.UniqueConstraint(fields=("run", "by", "sender_id"), name="runs_message_sent_once"),
                ],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
