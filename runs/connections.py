"""Parameters of database connections outside Django, for listeners, heartbeats and the hot path. They use
`DATABASE_DIRECT_URL` to bypass a transaction pooler, which breaks LISTEN and advisory locks."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# Keys of OPTIONS that Django's backend knows, but libpq doesn't.
_DJANGO_ONLY = frozenset({"pool", "server_side_binding", "isolation_level", "assume_role"})
_LIBPQ_NAMES = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
# Keepalives, so that a half-open connection (the server's machine vanished) is noticed within half a minute.
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
_tag = ""


def tag_of(incarnation: UUID) -> str:
    """Return the suffix of a worker's connection names.
    It is used to find and close connections when the worker is gone."""
    return incarnation.hex[:16]


def sign_connections(incarnation: UUID) -> None:
    """Add the tag to the names of this process's connections from now on, including Django's."""
    global _tag
    _tag = tag_of(incarnation)
    settings.DATABASES["default"].setdefault("OPTIONS", {})["application_name"] = f"durableagents housekeeping {_tag}"


def dsn(*, name: str = "durableagents") -> str:
    """Return a connection string for libpq; `name` is shown in `pg_stat_activity`.
    The settings are read at every call, because a test run renames the database after they were loaded."""
    direct = settings.DURABLEAGENTS.database_direct_url
    database = settings.DATABASES["default"]
    options = {key: value for key, value in database.get("OPTIONS", {}).items() if key not in _DJANGO_ONLY}
    name = f"{name} {_tag}".strip()
    if direct:
        # Time limits on locks and idle transactions apply here too, so that a stopped client can't block recovery.
        given = (database.get("DIRECT_OPTIONS", options.get("options")), conninfo_to_dict(direct).get("options"))
        limits = " ".join(str(each) for each in given if each)
        more = {key: options[key] for key in ("connect_timeout",) if key in options} | (
            {"options": limits} if limits else {}
        )
        return make_conninfo(direct, application_name=name, **_KEEPALIVES, **more)
    where = {libpq: database[ours] for ours, libpq in _LIBPQ_NAMES.items() if database.get(ours)}
    return make_conninfo(**{**_KEEPALIVES, **options, **where, "application_name": name})
