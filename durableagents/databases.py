"""The database and role to use, from DATABASE_URL or the embedded server's file.

`DURABLEAGENTS_DB_ROLE=owner` selects the role that owns the tables and migrates; everything else uses the *runtime*
role (grants.py).
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

# A stopped client with an open transaction, or a queue behind a lock, must not block recovery. `connect_timeout` covers
# a server that accepts connections and never answers. JIT compilation, on by default in PostgreSQL, takes seconds for
# queries of the console that need milliseconds without it.
RUNTIME_OPTIONS = "-c idle_in_transaction_session_timeout=5000 -c lock_timeout=2000 -c jit=off"
CONNECT_TIMEOUT_SECONDS = 5


def django_databases(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return settings.DATABASES. Raises EnvironmentProblem for an invalid URL."""
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
    # Migrations may wait for locks and idle between statements; the runtime role may not. Poolers in transaction mode
    # refuse or ignore `options`. Behind one, the role itself must have the limits, which runs/journal/pooler.py checks.
    options["options"] = given if as_owner or behind_pooler else limits
    options.update({key: value for key, value in parameters.items() if key not in _DJANGO_NAMES})
    return {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            **{ours: parameters.get(theirs, "") for theirs, ours in _DJANGO_NAMES.items()},
            "OPTIONS": {key: value for key, value in options.items() if value != ""},
            # Neither Django's psycopg pool, which breaks when django-q2 forks, nor persistent connections: under ASGI
            # each request has its own thread, so the connections would pile up.
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": True,
            # Behind a pooler, the next fetch of a cursor may use another server connection.
            "DISABLE_SERVER_SIDE_CURSORS": behind_pooler,
            # Options of direct connections that bypass the pooler (runs/connections.py). The role's statement limit is
            # for the web process only.
            "DIRECT_OPTIONS": f"{limits} -c statement_timeout=0" if behind_pooler else limits,
        }
    }


def limit_statements(options: dict[str, Any], environment: Environment) -> None:
    """Limit the statements of the web process (503), so that a few slow ones can't occupy the whole pool.

    A limit in DATABASE_URL takes precedence, because it comes later. Behind a pooler, the role has the limit.
    """
    if not is_pooled(environment):
        limit = f"-c statement_timeout={int(environment.web_statement_seconds * 1000)}"
        options["options"] = f"{limit} {options.get('options', '')}".strip()


def is_pooled(environment: Environment) -> bool:
    """Return whether DATABASE_URL points to a pooler. DATABASE_DIRECT_URL then names the server itself."""
    return bool(environment.database_url and environment.database_direct_url)


def runtime_role(environment: Environment) -> str | None:
    """Return the role to grant rights to; None if owner and runtime role are the same."""
    if environment.database_url:
        if not environment.database_owner_url:
            return None
        runtime = _from_url(environment.database_url, "DATABASE_URL").get("user")
        owner = _from_url(environment.database_owner_url, "DATABASE_OWNER_URL").get("user")
        return None if runtime == owner else runtime
    return RUNTIME_ROLE


def point_django_at(databases: dict[str, dict[str, Any]]) -> None:
    """Change the connection settings of a running process, for `up` and tests.

    Changes them in place, because the handler and the connections share the dict.
    """
    from django.db import connections

    connections["default"].close()
    connections.settings["default"].update(databases["default"])


def check_server() -> None:
    """Check that the server in DATABASE_URL answers and is new enough. Raises EnvironmentProblem."""
    from django.db import Error, connection

    try:
        connection.ensure_connection()
        version = connection.connection.info.server_version
    except Error as error:
        # Only the first line of the error is shown; libpq never puts the password into it.
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
    """Parse a libpq URL or key=value string.

    Raises EnvironmentProblem without quoting it, since it may contain a password.
    """
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
    """Return the connection parameters of the embedded cluster.

    Before the first start the address is a placeholder, because some commands need no database.
    """
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
