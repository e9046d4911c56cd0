"""The database's address for connections that are not Django's: listeners, heartbeats, the hot path.

A pooler in transaction mode breaks LISTEN and advisory locks, so these connections go straight to the server where
`DATABASE_DIRECT_URL` names it.
"""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# Keys of OPTIONS that mean something to Django's backend and nothing to libpq.
_DJANGO_ONLY = frozenset({"pool", "server_side_binding", "isolation_level", "assume_role"})
_LIBPQ_NAMES = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
# A half-open connection (the server's machine vanished) is noticed within half a minute.
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
_tag = ""


def tag_of(incarnation: UUID) -> str:
    """What ends the name of every connection of a worker, so that they can be told from all others, and closed, when it
    is gone."""
    return incarnation.hex[:16]


def sign_connections(incarnation: UUID) -> None:
    """From here on this process's connections carry its tag, Django's too."""
    global _tag
    _tag = tag_of(incarnation)
    settings.DATABASES["default"].setdefault("OPTIONS", {})["application_name"] = f"durableagents housekeeping {_tag}"


def dsn(*, name: str = "durableagents") -> str:
    """libpq's connection string. `name` is what `pg_stat_activity` shows for the connection.

    Read at every call: a test run renames the database after the settings were loaded.
    """
    direct = settings.DURABLEAGENTS.database_direct_url
    database = settings.DATABASES["default"]
    options = {key: value for key, value in database.get("OPTIONS", {}).items() if key not in _DJANGO_ONLY}
    name = f"{name} {_tag}".strip()
    if direct:
        # The time limits on locks and idle transactions hold here too: they are what keeps a stopped client from
        # blocking recovery.
        given = (database.get("DIRECT_OPTIONS", options.get("options")), conninfo_to_dict(direct).get("options"))
        limits = " ".join(str(each) for each in given if each)
        more = {key: options[key] for key in ("connect_timeout",) if key in options} | (
            {"options": limits} if limits else {}
        )
        return make_conninfo(direct, application_name=name, **_KEEPALIVES, **more)
    where = {libpq: database[ours] for ours, libpq in _LIBPQ_NAMES.items() if database.get(ours)}
    return make_conninfo(**{**_KEEPALIVES, **options, **where, "application_name": name})
