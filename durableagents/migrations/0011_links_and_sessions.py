"""Links that let somebody in once (set-up, invitations), and where accounts are signed in."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("durableagents", "0009_own_tags"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="apikey",
            options={"permissions": [("issue_own_key", "Can issue API keys to themselves")]},
        ),
        migrations.CreateModel(
            name="SetupLink",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("token_hash", models.BinaryField(max_length=32)),
                ("made_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="durableagents_setuplink_is_one")
                ],
            },
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("username", models.TextField()),
                ("email", models.TextField()),
                ("roles", models.JSONField()),
                ("is_admin", models.BooleanField()),
                ("token_hash", models.BinaryField(max_length=32, unique=True)),
                ("made_by", models.TextField()),
                ("maker", models.BigIntegerField()),
                ("made_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(null=True)),
                ("accepted_at", models.DateTimeField(null=True)),
                ("account", models.BigIntegerField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["-made_at"], name="durableagents_invitation_new")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("accepted_at__isnull", True), ("revoked_at__isnull", True)),
                        fields=("username",),
                        name="durableagents_invitation_one_open",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SignedIn",
            fields=[
                ("key", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
                ("address", models.TextField()),
                ("browser", models.TextField()),
                ("auth_hash", models.BinaryField(max_length=32)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="signed_in",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
    ]
