"""Which database, as whom: from DATABASE_URL, or from the file the embedded server leaves.

Two roles: the *owner* owns every table and runs migrations, the *runtime* role owns nothing and
does everything else (grants.py says what it may). `DURABLEAGENTS_DB_ROLE=owner` picks the first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from durableagents.env import Environment, EnvironmentProblem
from ledger.errors import first_line

CONNECTION_FILE = "database.json"

# A stopped client with an open transaction, or a queue behind one lock, must not hold up recovery
# for everybody. `connect_timeout` bounds a server that accepts and never answers.
RUNTIME_OPTIONS = "-c idle_in_transaction_session_timeout=5000 -c lock_timeout=2000"
CONNECT_TIMEOUT_SECONDS = 5


def django_databases(environment: Environment) -> dict[str, dict[str, Any]]:
    """The value of settings.DATABASES. Raises EnvironmentProblem on a URL that can't be read."""
    as_owner = environment.database_role == "owner"
    if environment.database_url:
        url = environment.database_url
        if as_owner and environment.database_owner_url:
            url = environment.database_owner_url
        parameters = _from_url(url, "DATABASE_URL")
    else:
        parameters = _embedded(environment.data, "owner" if as_owner else "runtime")
    options: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    given = parameters.pop("options", "")
    limits = f"{RUNTIME_OPTIONS} {given}".strip()
    behind_pooler = is_pooled(environment)
    # Migrations may wait for locks and may idle between statements; the runtime role may not. A pooler in transaction
    # mode refuses `options`, or drops them: behind one the limits are the role's own, which runs/journal/pooler.py
    # makes sure of.
    options["options"] = given if as_owner or behind_pooler else limits
    options.update({key: value for key, value in parameters.items() if key not in _DJANGO_NAMES})
    return {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            **{ours: parameters.get(theirs, "") for theirs, ours in _DJANGO_NAMES.items()},
            "OPTIONS": {key: value for key, value in options.items() if value != ""},
            # Neither Django's psycopg pool, which breaks across the forks of django-q2, nor kept
            # connections: under ASGI each request has a thread of its own, and they would pile up.
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": True,
            # The next fetch of a cursor might come to another server connection.
            "DISABLE_SERVER_SIDE_CURSORS": behind_pooler,
            # What runs/connections.py says on connections past the pooler; a limit on statements that the role has for
            # the web is not meant for them.
            "DIRECT_OPTIONS": f"{limits} -c statement_timeout=0" if behind_pooler else limits,
        }
    }


def limit_statements(options: dict[str, Any], environment: Environment) -> None:
    """For the web process: a statement that takes longer is given up (503), or a few bad ones would hold its whole
    pool. A time limit of DATABASE_URL's own comes later and counts; behind a pooler it is the role's."""
    if not is_pooled(environment):
        limit = f"-c statement_timeout={int(environment.web_statement_seconds * 1000)}"
        options["options"] = f"{limit} {options.get('options', '')}".strip()


def is_pooled(environment: Environment) -> bool:
    """Whether DATABASE_URL is said to be a pooler: then the server itself is at DATABASE_DIRECT_URL."""
    return bool(environment.database_url and environment.database_direct_url)


def runtime_role(environment: Environment) -> str | None:
    """The name of the role to grant to, or None where owner and runtime are the same role."""
    if environment.database_url:
        if not environment.database_owner_url:
            return None
        runtime = _from_url(environment.database_url, "DATABASE_URL").get("user")
        owner = _from_url(environment.database_owner_url, "DATABASE_OWNER_URL").get("user")
        return None if runtime == owner else runtime
    return RUNTIME_ROLE


def point_django_at(databases: dict[str, dict[str, Any]]) -> None:
    """Change where a running process connects: settings, handler and open connections share the
    one dict, so it is changed in place. For `up`, whose settings are read before its database
    exists, and for tests."""
    from django.db import connections

    connections["default"].close()
    connections.settings["default"].update(databases["default"])


def check_server() -> None:
    """Is a server of ours at DATABASE_URL, and new enough? Raises EnvironmentProblem."""
    from django.db import Error, connection

    try:
        connection.ensure_connection()
        version = connection.connection.info.server_version
    except Error as error:
        # The first line only, and libpq never puts the password in it.
        raise EnvironmentProblem(f"DATABASE_URL: {first_line(error)}") from None
    if version < OLDEST_SERVER:
        raise EnvironmentProblem(f"DATABASE_URL: PostgreSQL {version // 10_000} is too old, 15 or newer is needed")


OLDEST_SERVER = 150_000
OWNER_ROLE = "durableagents_owner"
RUNTIME_ROLE = "durableagents"
DATABASE_NAME = "durableagents"
_DJANGO_NAMES = {
    "dbname": "NAME",
    "user": "USER",
    "password": "PASSWORD",
    "host": "HOST",
    "port": "PORT",
}


def _from_url(url: str, variable: str) -> dict[str, Any]:
    """Parse a libpq URL or key=value string; never repeats its text, it holds a password."""
    if urlsplit(url).scheme in {"postgres", "postgresql"} or "=" in url:
        try:
            parts = dict(conninfo_to_dict(url))
        except ProgrammingError:
            parts = {}
        if parts.get("dbname"):
            return {key: unquote(str(value)) if key == "host" else value for key, value in parts.items()}
    raise EnvironmentProblem(
        f"{variable} is not a PostgreSQL address: expected postgresql://user:password@host:5432/name"
    )


def _embedded(data: Path, role: str) -> dict[str, Any]:
    """Parameters of the embedded cluster. Before its first start there is nothing to connect to,
    and commands that need no database must still run: the address then leads nowhere."""
    try:
        known = json.loads((data / CONNECTION_FILE).read_text())
        return {
            "dbname": known["dbname"],
            "host": known["host"],
            "port": str(known["port"]),
            "user": known[role]["user"],
            "password": known[role]["password"],
        }
    except FileNotFoundError:
        return {"dbname": DATABASE_NAME, "host": str(data / "not-started"), "user": RUNTIME_ROLE}
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentProblem(f"cannot read {data / CONNECTION_FILE}: {error}") from None
