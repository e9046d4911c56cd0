"""What somebody put among the records, with the application's own rights or with the superuser's, is not shown as what
people did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection, transaction
from django.test import Client

from approvals import trail
from approvals.services import decide
from durableagents import Context, End
from ledger.actors import Actor
from ledger.append import acted
from runs.models import Run
from runs.services import lifecycle
from tests.integration.runs.stage import Stage
from tests.integration.runs.stories import as_superuser
from tests.world import FIONA, OLGA, SHOP, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
OPS = Actor("os", "ops", role="operator", auth="shell")


@pytest.fixture
def read(stage: Stage) -> Iterator[Callable[[str], Any]]:
    user = User.objects.create_user("ada")
    user.groups.set([Group.objects.get_or_create(name="auditor")[0]])
    client = Client()
    client.force_login(user)
    yield lambda address: client.get(address)
    User.objects.all().delete()


@pytest.fixture
def busy(stage: Stage, tools: Toolbox) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)

    run = lifecycle.start(agent_of(node, tools=tools.all()).graph_id, {}, by=SHOP)
    stage.drive()
    lifecycle.pause(run.pk, by=OLGA, justification="month end")
    lifecycle.resume(run.pk, by=OLGA, justification="month began")
    asked = run.approvals.get()
    decide(asked.id, verdict="approve", plan_hash=asked.plan_hash, justification="as quoted", by=FIONA)
    acted("declare_dead", by=OPS, subject="gone.example", justification="its power supply burnt")
    return run


def smuggled(at: str = "clock_timestamp()") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_actrecord (action, subject, queue, by, role, auth, address, "
            "justification, before, after, at) "
            f"VALUES ('declare_dead', 'db.example', '', 'user:fiona', 'operator', 'session', '', "
            f"'forged', '{{}}', '{{}}', {at})"
        )


def marks() -> dict[str, bool | None]:
    return {act.action: act.is_genuine for act in trail.acts(trail.Filters()) if act.kind != "account"}


def test_what_our_processes_wrote_is_genuine(busy: Run, read: Callable[[str], Any]) -> None:
    assert marks() == dict.fromkeys(("approve", "pause", "resume", "start", "declare_dead"), True)
    page = read("/audit").content.decode()
    assert "not genuine" not in page and "uncoded" not in page


def test_a_forged_row_is_marked_on_the_page_and_in_the_api(busy: Run, read: Callable[[str], Any]) -> None:
    smuggled()
    assert read("/audit").content.decode().count("not genuine") == 1
    first = read("/api/v1/audit").json()["results"][0]
    assert (first["justification"], first["is_genuine"]) == ("forged", False)


@pytest.mark.parametrize(
    ("table", "change", "action"),
    [
        ("ledger_overriderecord", "by = 'user:fiona'", "pause"),
        ("approvals_decision", "justification = 'x'", "approve"),
        ("ledger_actrecord", "subject = 'x'", "start"),
        ("ledger_actrecord", "code = NULL", "declare_dead"),
        ("approvals_decision", "code = NULL", "approve"),
        ("ledger_overriderecord", "code = decode(md5(id::text), 'hex')", "pause"),
        ("ledger_actrecord", "code = NULL, n = -n", "declare_dead"),
    ],
)
def test_a_changed_row_is_marked(busy: Run, table: str, change: str, action: str) -> None:
    as_superuser(f"UPDATE {table} SET {change}")
    assert marks()[action] is False


@pytest.mark.parametrize(
    ("table", "which"),
    [
        ("ledger_actrecord", "run_id IS NULL"),
        ("ledger_actrecord", "run_id IS NOT NULL"),
        ("ledger_overriderecord", "action = 'pause'"),
        ("approvals_decision", "verdict = 'approve'"),
    ],
)
def test_nobody_puts_in_a_copy_of_what_somebody_did(busy: Run, table: str, which: str) -> None:
    """With the application's own rights: its code would be right, and it would be one act more."""
    with connection.cursor() as cursor:
        names = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        cursor.execute(f"{names} AND attname <> ALL ('{{id,n,prev_hash,hash}}')", [table])
        columns = ", ".join(f'"{name}"' for (name,) in cursor.fetchall())
        with pytest.raises(IntegrityError, match="once"), transaction.atomic():
            cursor.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE {which}")
