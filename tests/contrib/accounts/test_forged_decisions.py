"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection

from durableagents.contrib.accounts.invitations import roles_of
from durableagents.contrib.accounts.models import Invitation
from runs.models import Run
from tests.integration.approvals.setup import boss, signed_in, somebody
from tests.integration.approvals.test_forged_decisions import OPS, busy, insert, said_so  # noqa: F401 (fixture)
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools  # noqa: F401 (fixtures)

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@pytest.fixture(autouse=True)
def _forgiving() -> None:
    """Open no transaction, unlike the folder's fixture: the stage's workers would not see what it holds."""


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
