"""One row that nobody can read, of a channel, of somebody's wishes or of a message, keeps nobody else from being
told."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from approvals.models import Delivery, Notice
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


@pytest.mark.parametrize("note", DAMAGES)
def test_one_that_nobody_can_read_takes_no_digest_its_others(
    stage: Stage, tools: Toolbox, postbox: Postbox, note: str
) -> None:
    own.prefer(PreferenceBody(digest="hourly"), by=fiona())
    for n in range(3):
        stage.start(buying(tools, 5000 + n))
        assert stage.drive() == "parked"
    addressing.address_all()
    odd, *rest = Delivery.objects.order_by("due_at", "pk")
    as_superuser(DAMAGES[note], odd.notice_id)
    soon()
    deliver()
    (mail,) = postbox.mails
    assert mail["Subject"].startswith("2 things wait") and "5,000" not in postbox.text()
    assert {Delivery.objects.get(pk=each.pk).state for each in rest} == {"sent"} and len(rest) == 2
    odd.refresh_from_db()
    state, outcome = ("needless", "needless") if "no such kind" in note else ("dead", "refused")
    assert odd.state == state and note in odd.note and [each["outcome"] for each in odd.tries] == [outcome]


NEVER = ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"]


@pytest.mark.parametrize("at", NEVER)
def test_a_moment_that_no_calendar_here_has_keeps_nobody_waiting(
    stage: Stage, tools: Toolbox, postbox: Postbox, at: str
) -> None:
    fiona()
    asked(stage, tools)
    addressing.address_all()
    as_superuser("UPDATE approvals_delivery SET made_at = %s", at)
    due = at if at in NEVER[1::2] else "-infinity"  # what is due in ten thousand years is nobody's turn
    as_superuser("UPDATE approvals_delivery SET due_at = %s", due)
    stage.start(buying(tools, 6000))
    assert stage.drive() == "parked"
    as_superuser("UPDATE approvals_notice SET at = %s WHERE state = 'new'", at)
    as_superuser("UPDATE approvals_notice SET due_at = %s WHERE state = 'new' AND kind = 'opened'", due)
    deliver()
    assert states() == [("email", "sent")] * 2 and len(postbox.mails) == 2
    assert not Notice.objects.filter(state="new", kind="opened").exists()
    client = Client()
    client.force_login(User.objects.get(pk=somebody("olga", "operator").person))
    assert client.get("/notifications/log").content.count(b"fiona") >= 2


def test_an_hour_that_no_clock_here_has_keeps_nobody_else_from_being_told(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    fiona()
    frank = somebody("frank", "approver_finance", email="frank@example.org")
    own.prefer(PreferenceBody(quiet_from="00:00", quiet_until="00:01"), by=frank)
    as_superuser("UPDATE approvals_preference SET quiet_from = '24:00', quiet_until = '24:00', digest_at = '24:00'")
    asked(stage, tools)
    deliver()
    assert states() == [("email", "sent")] * 2 and sorted(postbox.to) == ["fiona@example.org", "frank@example.org"]
