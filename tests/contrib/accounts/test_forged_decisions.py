"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection

from approvals.services import decide
from durableagents import Context, End
from durableagents.contrib.accounts.invitations import roles_of
from durableagents.contrib.accounts.models import Invitation
from ledger.append import acted
from runs.models import Run
from runs.services import lifecycle
from tests.integration.approvals.setup import boss, signed_in, somebody
from tests.integration.approvals.test_forged_decisions import OPS, insert, said_so
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.stage import Stage
from tests.world import FIONA, OLGA, SHOP, Item, Notes, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@pytest.fixture(autouse=True)
def _forgiving() -> None:
    """Open no transaction, unlike the folder's fixture: the stage's workers would not see what it holds."""


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


@said_so
def test_rows_that_people_are_listed_by_take_no_list_away(busy: Run, said: str) -> None:
    admin, olga = boss(), somebody("olga", "operator", "auditor")
    insert(
        "approvals_channel",
        form="email",
        name="forged",
        address=b"",
        shown="x",
        kinds=said,
        set_by="x",
        made_at="now",
        changed_at="now",
    )
    notice = insert(
        "approvals_notice",
        fact="forged",
        kind="decision",
        run_id=busy.pk,
        about="",
        at="now",
        state="over",
        note="",
        due_at="now",
    )
    insert(
        "approvals_delivery",
        notice_id=notice,
        by="email",
        person=olga.person,
        state="sent",
        is_grouped=False,
        due_at="now",
        tries=said,
        note="",
        made_at="now",
    )
    insert(
        "durableagents_invitation",
        username="eve",
        email="eve@example.com",
        roles=said,
        is_admin=False,
        token_hash=bytes(32),
        made_by="user:boss",
        maker=admin.person,
        made_at="now",
        expires_at="tomorrow",
    )
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET tags = %s", [said])
    paths = ["/", "/people", "/runs", f"/runs/{busy.pk}", "/notifications/channels", "/notifications/log"]
    paths += [
        f"/api/v1/{each}" for each in ("runs", f"runs/{busy.pk}", "notifications/deliveries", "notifications/channels")
    ]
    for by in (admin, olga):
        client = signed_in(by)
        assert {path: status for path in paths if (status := client.get(path).status_code) not in (200, 302, 403)} == {}
    assert not roles_of(Invitation.objects.get()) and User.objects.filter(username="eve").count() == 0
