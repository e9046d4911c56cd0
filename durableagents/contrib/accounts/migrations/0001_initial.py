"""Invitations, the set-up link and sessions of accounts, and an index on a table of django-allauth."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from ledger.migration_operations import AdoptModel

# A passkey belongs to one account and is found by what a browser answers with.
PASSKEYS = (
    "CREATE UNIQUE INDEX IF NOT EXISTS durableagents_passkey_once ON mfa_authenticator ((data -> 'id')) WHERE type = 'webauthn'"
)


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py
    brings = ("account", "mfa", "socialaccount")  # likewise: these apps are left out with this one

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("durableagents", "0001_initial"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("sessions", "0001_initial"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]

    operations = [
        AdoptModel(
            name='SetupLink',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('token_hash', models.BinaryField(max_length=32)),
                ('made_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'durableagents_setuplink',
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='durableagents_setuplink_is_one')],
            },
        ),
        AdoptModel(
            name='Invitation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('username', models.TextField()),
                ('email', models.TextField()),
                ('roles', models.JSONField()),
                ('is_admin', models.BooleanField()),
                ('token_hash', models.BinaryField(max_length=32, unique=True)),
                ('made_by', models.TextField()),
                ('maker', models.BigIntegerField()),
                ('made_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(null=True)),
                ('accepted_at', models.DateTimeField(null=True)),
                ('account', models.BigIntegerField(null=True)),
            ],
            options={
                'db_table': 'durableagents_invitation',
                'indexes': [models.Index(fields=['-made_at'], name='durableagents_invitation_new')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('accepted_at__isnull', True), ('revoked_at__isnull', True)), fields=('username',), name='durableagents_invitation_one_open')],
            },
        ),
        AdoptModel(
            name='SignedIn',
            fields=[
                ('key', models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ('since', models.DateTimeField()),
                ('address', models.TextField()),
                ('browser', models.TextField()),
                ('auth_hash', models.BinaryField(max_length=32)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='signed_in', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'durableagents_signedin',
            },
        ),
        # The index stays when this is reversed: the code to go back to has it in another app.
        migrations.RunSQL(PASSKEYS, migrations.RunSQL.noop),
    ]
