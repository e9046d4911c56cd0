"""Whose own a tag is; its record tells it: see durableagents/sql/0009_own_tags.sql."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0009_own_tags.sql")
UNDO = """
DROP TRIGGER accounts_are_recorded ON durableagents_owntag;
DROP FUNCTION accounts_on_own_tag();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("durableagents", "0008_document"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OwnTag",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tag", models.CharField(help_text="As runs carry it: late, or tenant:acme.", max_length=200)),
                ("given_at", models.DateTimeField()),
                ("given_for", models.TextField(help_text="Why the account may see runs of this tag.", max_length=2000, verbose_name="reason")),
                ("taken_at", models.DateTimeField(blank=True, null=True)),
                ("taken_for", models.TextField(blank=True, db_default="", default="", max_length=2000, verbose_name="reason to take it")),
                ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="own_tags", to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(condition=models.Q(("taken_at__isnull", True)), fields=("user", "tag"), name="durableagents_owntag_once"),
                    models.CheckConstraint(condition=models.Q(models.Q(("tag", ""), _negated=True), models.Q(("given_for", ""), _negated=True)), name="durableagents_owntag_says_why"),
                    models.CheckConstraint(condition=models.Q(("taken_at__isnull", True), models.Q(("taken_for", ""), _negated=True), _connector="OR"), name="durableagents_owntag_says_why_not"),
                ],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
