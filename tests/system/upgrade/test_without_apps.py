"""Apps of durableagents/contrib are left out of a new database, and of one that was made with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from django.conf import settings

from tests.conftest import CHECKOUT
from tests.system.databases import database

_MISFIT = "import django; django.setup(); from ledger import schema; print(schema.misfit() or '')"
# A user signs in, sees pages, also under /admin/, and signs out.
_SIGN_IN = """
import django; django.setup()
from django.contrib.auth.models import User
from django.test import Client
from django.utils.crypto import get_random_string
password = get_random_string(20)
olga = User.objects.create_superuser("olga", password=password)
client = Client(HTTP_HOST="localhost")
given = {"username": "olga", "password": password}
assert client.post("/login", given | {"password": "another"}).status_code == 400
pages = [client.get("/login"), client.post("/login", given), client.get("/runs")]
olga.groups.add(1)
paths = ("/", "/runs", "/inbox", "/queues", "/api/v1/me", "/reference", "/admin/password_change/", "/admin/auth/user/")
pages += [client.get(path) for path in paths]
pages += [client.post("/logout"), client.get("/")]
print([page.status_code for page in pages])
"""
# Those whose tables may stay behind unused.
REMOVABLE = (
    "accounts,bulk,calendars,casework,certify,change_control,documents,forks,halts,limits,metrics,notifications,policies,"
    "releases,replay,reports,schedules,screening,search,standing_approvals,step_up,webhooks"
)

# What apps guard may not be dropped unseen: the refusal, a row that causes it, and what ends that.
NEEDED: Sequence[tuple[str, LiteralString, LiteralString]] = (
    (
        "durableagents.contrib.halts (runs or calls are halted",
        "INSERT INTO runs_haltnow SELECT gen_random_uuid(), 1, 0, 'halt', 'tool', 'charge', false, false, 0, '{}',"
        " '{}', 'user:olga', 'why', now()",
        "DELETE FROM runs_haltnow",
    ),
    (
        "durableagents.contrib.change_control (changes of rules need two people",
        "INSERT INTO ledger_foureyes (n, families, set_by, at) VALUES (1, '{roles}', 'user:anna', now())",
        "INSERT INTO ledger_foureyes (n, families, set_by, at) VALUES (2, '{}', 'user:anna', now())",
    ),
)


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Create no test database: each test has its own."""


def run(urls: Mapping[str, str], folder: Path, without: str, *arguments: str) -> str:
    """Run Python with these arguments as the owner, without these apps; return what it prints, errors too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE", "DURABLEAGENTS"))}
    env = kept | {
        "DJANGO_SETTINGS_MODULE": "tests.system.without",
        "WITHOUT": without,
        "DATABASE_OWNER_URL": urls["owner"],
        "DATABASE_URL": urls["runtime"],
        "DURABLEAGENTS_DB_ROLE": "owner",
        "DURABLEAGENTS_DATA": str(folder),
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=env, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip()


def test_apps_are_left_out_and_put_back(postgres: Mapping[str, str], django_db_setup: None, tmp_path: Path) -> None:
    with database(postgres) as urls:

        def migrated(without: str) -> str:
            return run(urls, tmp_path, without, "manage.py", "migrate", "-v0") + run(
                urls, tmp_path, without, "-c", _MISFIT
            )

        assert migrated("all") == "", "a new database"
        found, *missing = run(urls, tmp_path, "all", "manage.py", "check").splitlines()
        assert found == "System check identified no issues (0 silenced)."
        named = {line.split(" is not installed. Switched off: ")[0] for line in missing if not line.endswith(": .")}
        assert named == {
            app for app in settings.INSTALLED_APPS if app.startswith("durableagents.c") if ".apps." not in app
        }
        signed_in = run(urls, tmp_path, "all", "-c", _SIGN_IN)
        assert signed_in == "[200, 302, 403, 200, 200, 200, 200, 200, 200, 200, 200, 302, 302]", signed_in
        assert migrated("restore_hold") == "", "the apps come later, but for one that needs halts"
        rest = f"{REMOVABLE},restore_hold"
        assert "SQL differs" in run(urls, tmp_path, rest, "-c", _MISFIT)
        assert migrated(rest) == "", "their tables stay, their functions and triggers go"
        refused = run(urls, tmp_path, "encryption,restore_hold", "manage.py", "migrate", "-v0")
        assert "INSTALLED_APPS lacks durableagents.contrib.encryption" in refused and "add it again" in refused
        with psycopg.connect(urls["owner"], autocommit=True) as owner:
            for needed, begin, end in NEEDED:
                owner.execute(begin)
                refused = run(urls, tmp_path, rest, "manage.py", "migrate", "-v0")
                assert needed in refused and "add it again" in refused
                owner.execute(end)
        assert migrated("none") == "", "they find their tables again"
        assert "needs durableagents.contrib.halts" in run(urls, tmp_path, "halts", "manage.py", "check")
