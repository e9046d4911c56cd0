"""One row that nobody can read, of a channel, of somebody's wishes or of a message, keeps nobody else from being
told."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from approvals.models import Delivery
from approvals.notices import addressing, own
from approvals.notices.bodies import PreferenceBody
from tests.approvals.post import Postbox
from tests.approvals.setup import asked, boss, buying, somebody
from tests.approvals.test_notices import deliver, fiona, soon, states
from tests.runs.stage import Stage
from tests.runs.stories import as_superuser
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
ODD = ["5", '"x"', "[[]]", '{"opened": 5}', "null", f"[1{'0' * 5000}]", "[" * 3000 + "]" * 3000]
_CHANNEL = """
    INSERT INTO approvals_channel (form, name, address, shown, kinds, set_by, made_at, changed_at)
    VALUES ('mailbox', 'odd', 'odd@example.org', 'odd', %s::jsonb, 'user:mallory', now(), now())"""


@pytest.mark.parametrize("kinds", [each for each in ODD if each != "null"], ids=range(6))
def test_a_channel(stage: Stage, tools: Toolbox, postbox: Postbox, kinds: str) -> None:
    fiona()
    as_superuser(_CHANNEL, kinds)
    asked(stage, tools)
    deliver()
    assert states() == [("email", "sent")] and len(postbox.mails) == 1
    client = Client()
    client.force_login(User.objects.get(pk=boss().person))
    assert client.get("/notifications/channels").status_code == 200


@pytest.mark.parametrize("ways", [each for each in ODD if each != "null"], ids=range(6))
def test_what_somebody_else_wishes(stage: Stage, tools: Toolbox, postbox: Postbox, ways: str) -> None:
    fiona()
    frank = somebody("frank", "approver_finance", email="frank@example.org")
    own.prefer(PreferenceBody(digest="none"), by=frank)
    as_superuser("UPDATE approvals_preference SET ways = %s::jsonb, zone = 'Nowhere/At/All'", ways)
    asked(stage, tools)
    deliver()
    assert states() == [("email", "sent")] * 2


@pytest.mark.parametrize("tries", [each for each in ODD if each != "null"], ids=range(6))
def test_what_came_of_a_message(stage: Stage, tools: Toolbox, postbox: Postbox, tries: str) -> None:
    fiona()
    asked(stage, tools)
    addressing.address_all()
    as_superuser("UPDATE approvals_delivery SET tries = %s::jsonb", tries)
    soon()
    deliver()
    assert states() == [("email", "sent")]


DAMAGES = {
    "knows no such kind": "UPDATE approvals_notice SET kind = 'unheard_of' WHERE id = %s",
    "can't be told": "UPDATE approvals_notice SET kind = 'rule_change', about = 'no number' WHERE id = %s",
}


@pytest.mark.parametrize("note", DAMAGES)
def test_one_that_nobody_can_read_takes_no_page_its_others(stage: Stage, tools: Toolbox, note: str) -> None:
    by = fiona()
    own.prefer(PreferenceBody(ways={"opened": ["browser"]}), by=by)
    for _ in range(2):
        stage.start(buying(tools))
        assert stage.drive() == "parked"
    addressing.address_all()
    first, second = Delivery.objects.order_by("due_at", "pk")
    as_superuser(DAMAGES[note], first.notice_id)
    client = Client()
    client.force_login(User.objects.get(pk=by.person))
    answer = client.post("/notifications/browser")
    assert answer.status_code == 200 and [each["tag"] for each in answer.json()["shown"]] == [str(second.pk)]
    first.refresh_from_db()
    assert first.state == "needless" and note in first.note
    assert client.post("/notifications/browser").json() == {"shown": []} and not connection.needs_rollback
