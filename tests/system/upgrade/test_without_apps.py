"""Apps of durableagents/contrib are left out of a new database, and of one that was made with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.system.databases import database

_MISFIT = "import django; django.setup(); from ledger import schema; print(schema.misfit() or '')"
_PAGES = """
import django
django.setup()
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
settings.ALLOWED_HOSTS = ["*"]
client, user = Client(), User.objects.create_superuser("ann")
user.groups.set(Group.objects.filter(name__in=["operator", "auditor"]))
client.force_login(user)
pages = ["/", "/account", "/inbox", "/runs", "/queues", "/audit", "/people", "/api/v1/me"]
print([(page, answer.status_code) for page in pages if (answer := client.get(page)).status_code != 200] or "")
"""
# Those whose tables may stay behind unused.
REMOVABLE = (
    "bulk,casework,certify,documents,forks,limits,metrics,notifications,releases,replay,reports,schedules,webhooks"
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
        assert run(urls, tmp_path, "all", "-c", _PAGES) == "", "pages link to nothing that is not there"
        assert migrated("none") == "", "the apps come later"
        assert "SQL differs" in run(urls, tmp_path, REMOVABLE, "-c", _MISFIT)
        assert migrated(REMOVABLE) == "", "their tables stay, their functions and triggers go"
        refused = run(urls, tmp_path, "encryption", "manage.py", "migrate", "-v0")
        assert "INSTALLED_APPS lacks durableagents.contrib.encryption" in refused and "put it back" in refused
        assert migrated("none") == "", "they find their tables again"
