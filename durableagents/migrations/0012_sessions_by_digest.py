"""A session is found by its key's digest, which is all that is kept of it beside the session itself.

Built while others sign in: the table is Django's and in use.
"""

from django.db import migrations

_NAME = "django_session_by_digest"


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("durableagents", "0011_links_and_sessions"), ("sessions", "0001_initial")]

    operations = [
        migrations.RunSQL(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {_NAME} ON django_session (sha256(session_key::bytea))",
            f"DROP INDEX CONCURRENTLY IF EXISTS {_NAME}",
        )
    ]
