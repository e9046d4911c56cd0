"""The stage leaves nothing behind: a test's commits would reach the next test in its process."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from django.contrib.auth.models import Group, Permission, User
from django.db import connection

from durableagents.apps import create_roles
from durableagents.identity.auth import issue_key
from ledger.web.roles import AUDITOR, OPERATOR, ROLES
from ledger.web.seeing.viewers import READ_PAYLOADS
from tests.conftest import database_urls
from tests.integration.runs.stage import Stage, calling
from tests.kept import MIGRATED, clean
from tests.world import Toolbox


def filled(url: str) -> set[str]:
    with psycopg.connect(url) as link:
        tables = [name for (name,) in link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        return {name for name in tables if link.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()} - MIGRATED


def test_nothing_of_a_story_stays(stage: Stage, tools: Toolbox, postgres: Mapping[str, str]) -> None:
    issue_key(User.objects.create_user("somebody", password="a long enough one"), "test")
    stage.start(calling(tools, "order"))
    stage.drive()
    connection.close()
    admin = database_urls(postgres)["admin"]
    assert {"auth_user", "durableagents_apikey", "runs_run", "ledger_event"} <= filled(admin)
    clean(admin)
    made = {"approvals_queue", "auth_group", "auth_group_permissions", "ledger_rowcode"}
    assert filled(admin) <= made, "as a migration makes them"


def test_what_a_story_lets_roles_stays_with_it(stage: Stage, postgres: Mapping[str, str]) -> None:
    """One test revoked the operators' right to read, and the next one failed."""
    right = Permission.objects.get(codename=READ_PAYLOADS)
    Group.objects.get(name=OPERATOR).permissions.clear()
    Group.objects.create(name="helpers").permissions.add(right)
    Group.objects.filter(name=AUDITOR).delete()
    clean(database_urls(postgres)["admin"])
    assert set(Group.objects.values_list("name", flat=True)) == set(ROLES)
    left = {name: [*group.permissions.all()] for name in ROLES for group in [Group.objects.get(name=name)]}
    Group.objects.all().delete()
    create_roles(using="default")
    made = {name: [*group.permissions.all()] for name in ROLES for group in [Group.objects.get(name=name)]}
    assert left == made and left[OPERATOR] == [right]
