"""Each app of durableagents/contrib works without the others, but for those that it imports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from django.conf import settings

from tests.system.databases import database
from tests.system.upgrade.test_without_apps import run

CONTRIB = "durableagents.contrib."
APPS = [
    name.removeprefix(CONTRIB) for name in settings.INSTALLED_APPS if name.startswith(CONTRIB) and ".apps." not in name
]
# The imports that pyproject.toml allows.
NEEDS = {"evidence": ["replay", "seals"], "reports": ["certify"], "restore_hold": ["halts"], "step_up": ["accounts"]}


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Create no test database: each test has its own."""


@pytest.mark.timeout(900)
def test_each_app_works_alone(postgres: Mapping[str, str], tmp_path: Path) -> None:
    wrong = {}
    with database(postgres) as core:
        assert run(core, tmp_path, "all", "manage.py", "migrate", "-v0") == ""
        for app in APPS:
            others = ",".join({*APPS} - {app, *NEEDS.get(app, [])})
            with database(postgres, template=core["owner"]) as urls:
                if said := run(urls, tmp_path, others, "-m", "tests.system.upgrade.alone"):
                    wrong[app] = said
    assert wrong == {}
