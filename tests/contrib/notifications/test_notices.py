"""Notifications: a fact becomes one notice, one delivery per person who may act on it, and one message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from approvals.models import Approval
from durableagents.contrib.notifications import addressing, delivering, preferences
from durableagents.contrib.notifications.kinds import tell
from durableagents.contrib.notifications.models import Delivery, Notice
from durableagents.contrib.notifications.preferences import PreferenceBody
from durableagents.outgoing import http
from ledger.actors import Actor
from ledger.errors import InvalidInput
from runs.features import Notification
from runs.models import Run, Wait
from runs.services import lifecycle
from runs.services.settling import agreeing
from runs.workers import timers
from tests.contrib.calendars.timing import away
from tests.contrib.change_control.test_settling import DID_NOT, FAMILIES, guarded, refused_late, says
from tests.contrib.notifications.mail_server import Postbox
from tests.integration.approvals.setup import WHY, asked, boss, buying, say, signed_in, somebody
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, at_once, now, waiting
from tests.tampering import tamper
from tests.tiers import many
from tests.world import Notes, Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db


def deliver() -> None:
    addressing.address_all()
    delivering.deliver(delivering.BY_MAIL)
    delivering.deliver(delivering.BY_CHAT)


def soon(**what: Any) -> None:
    Delivery.objects.filter(state__in=["waiting", "sending"], **what).update(due_at=now())
    delivering._pauses.clear()
    http._silent.clear()


def fiona(**more: Any) -> Actor:
    return somebody("fiona", "approver_finance", email="fiona@example.org", **more)


def states() -> list[tuple[str, str]]:
    return list(Delivery.objects.order_by("pk").values_list("by", "state"))


def test_a_question_is_mailed_only_to_who_may_decide_it(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    fiona()
    somebody("frank", "approver_finance", email="frank@example.org")
    somebody("lena", "approver_legal", email="lena@example.org")
    somebody("olga", "operator", email="olga@example.org")
    somebody("gone", "approver_finance", email="gone@example.org", is_active=False)
    approval = asked(stage, tools)
    deliver()
    assert sorted(postbox.to) == ["fiona@example.org", "frank@example.org"]
    text = postbox.text()
    assert postbox.mails[0]["Subject"] == "To decide: Pay, $5,000"
    assert "Amount: $5,000" in text and "Queue: finance_po" in text and "Until: " in text and "Requested by: " in text
    assert f"http://127.0.0.1:8000/inbox/{approval.pk}\n" in text
    assert states() == [("email", "sent")] * 2
    deliver()
    assert len(postbox.mails) == 2, "a fact is told once"


def test_a_deputy_is_told_and_anyone_who_started_the_run_is_not(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    away(fiona(), somebody("dora", "operator", email="dora@example.org").name)
    starter = somebody("stan", "approver_finance", email="stan@example.org")
    lifecycle.start(buying(tools).graph_id, {}, by=starter)
    assert stage.drive() == "parked"
    deliver()
    assert sorted(postbox.to) == ["dora@example.org", "fiona@example.org"]


def test_someone_who_loses_the_role_before_it_is_sent_is_not_told(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    fiona()
    asked(stage, tools)
    addressing.address_all()
    User.objects.get(username="fiona").groups.clear()
    delivering.deliver(delivering.BY_MAIL)
    row = Delivery.objects.get()
    assert postbox.mails == [] and (row.state, row.note) == ("needless", "they may no longer act on it")


def test_what_is_decided_before_it_is_sent_is_not_told(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    by = fiona()
    approval = asked(stage, tools)
    addressing.address_all()
    say(approval, by)
    delivering.deliver(delivering.BY_MAIL)
    assert postbox.mails == [] and Delivery.objects.get().note == "it is approved"


def test_a_stranger_with_the_link_signs_in_and_sees_what_they_may(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    by = fiona()
    approval = asked(stage, tools)
    deliver()
    (link,) = [word for word in postbox.text().split() if "/inbox/" in word]
    path = link.removeprefix("http://127.0.0.1:8000")
    assert path == f"/inbox/{approval.pk}" and postbox.html().count(path) == 1
    stranger = Client().get(path)
    assert (stranger.status_code, stranger["Location"]) == (302, f"/login?next={path}")
    assert Approval.objects.get().state == "open"
    other = signed_in(somebody("ivan", "integrator"))
    assert other.get(path).status_code == 404
    own_page = signed_in(by)
    assert own_page.get(path).status_code == 200 and Approval.objects.get().state == "open"


HOSTILE = (
    "Pay now\nSubject: x https://evil.example/a www.evil.example ops@evil.example \u202eoops <b>bold</b> " + "x" * 400
)


def test_what_an_agent_wrote_is_one_short_line_in_which_nothing_hides_and_nothing_can_be_clicked(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    fiona()
    approval = asked(stage, tools)
    tamper("UPDATE approvals_approval SET title = %s WHERE id = %s", HOSTILE, approval.pk)
    deliver()
    text, html = postbox.text(), postbox.html()
    (line,) = [line for line in text.splitlines() if "Pay now" in line]
    assert "Pay now[line break]Subject" in line and "[U+202E]" in line and "more]" in line
    assert len(line) < 300 and "\u202e" not in text + html
    for live in ("://evil", "evil.example", "@evil", "<b>bold"):
        assert live not in text.replace("&lt;", "<") or live == "<b>bold"
        assert live not in html
    assert html.count("<a ") == 1


def test_no_argument_and_no_secret_stands_in_a_mail(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    fiona()
    approval = asked(stage, tools)
    deliver()
    whole = postbox.mails[0].as_string()
    assert "arguments" not in whole and approval.plan_hash not in whole and "token" not in whole


def test_an_unknown_outcome_is_told_to_operators(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    somebody("olga", "operator", email="olga@example.org")
    fiona()
    run = stage.start(agent_of(ends_with("done")))
    stage.settle(run)
    with transaction.atomic():
        Wait.objects.create(
            id="00000000-0000-4000-8000-000000000001",
            run_id=run.pk,
            slot="0.1/9",
            kind="reconcile",
            opened_at=now(),
            deadline=now() + timedelta(days=1),
            detail={"tool": "pay", "title": "Pay", "attempt": 0},
        )
    deliver()
    assert postbox.to == ["olga@example.org"] and postbox.mails[0]["Subject"] == "Unknown outcome: Pay"
    Wait.objects.update(deadline=now() - timedelta(seconds=1))
    Wait.objects.filter(kind="reconcile").update(is_overdue=True)
    deliver()
    assert [mail["Subject"] for mail in postbox.mails] == ["Unknown outcome: Pay", "Overdue: Pay"]


def test_a_failed_run_is_told_to_operators_and_its_starter(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    somebody("olga", "operator", email="olga@example.org")
    starter = somebody("ivan", "integrator", email="ivan@example.org")
    somebody("iris", "integrator", email="iris@example.org")

    async def node(state: Notes, ctx: Any) -> Any:
        raise ValueError("no")

    stage.settle(lifecycle.start(agent_of(node).graph_id, {}, by=starter))
    deliver()
    assert sorted(postbox.to) == ["ivan@example.org", "olga@example.org"]
    assert postbox.mails[0]["Subject"].startswith("Failed: ")


def test_a_near_deadline_is_told_once_a_moved_one_later(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    fiona()
    approval = asked(stage, tools)
    deliver()
    row = Notice.objects.get(kind="due_soon")
    assert approval.deadline - timedelta(days=1, seconds=1) <= row.due_at < approval.deadline
    assert row.state == "new" and len(postbox.mails) == 1
    Notice.objects.filter(pk=row.pk).update(due_at=now())
    addressing.address_all()
    row.refresh_from_db()
    assert row.state == "new" and row.due_at > now(), "the deadline is not near yet: it waits for that"
    Approval.objects.update(deadline=now() + timedelta(minutes=40))
    Notice.objects.filter(pk=row.pk).update(due_at=now())
    deliver()
    assert [mail["Subject"] for mail in postbox.mails] == ["To decide: Pay, $5,000", "Deadline near: Pay, $5,000"]


def test_what_is_not_committed_is_not_told(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, tools)
    Notice.objects.all().delete()
    with transaction.atomic():
        tell(Notification(kind="reminder", fact="x", approval_id=approval.pk))
        transaction.set_rollback(True)
    assert not Notice.objects.exists()


def test_many_couriers_at_once_send_each_message_once(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    for n in range(8):
        somebody(f"f{n}", "approver_finance", email=f"f{n}@example.org")
    asked(stage, tools)
    answers = at_once(*[deliver] * many(64, 16))
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert sorted(postbox.to) == [f"f{n}@example.org" for n in range(8)]
    assert Delivery.objects.filter(state="sent").count() == 8


def test_a_notice_whose_rows_are_damaged_keeps_no_other_waiting(
    stage: Stage, tools: Toolbox, postbox: Postbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    fiona()
    asked(stage, tools)
    tell(Notification(kind="operator_stop", fact="x"))
    real = addressing.read_subject

    def torn(notice: Notice) -> Any:
        if notice.kind == "operator_stop":
            raise ValueError("the row can't be read")
        return real(notice)

    monkeypatch.setattr(addressing, "read_subject", torn)
    deliver()
    assert postbox.to == ["fiona@example.org"]
    assert "the row can't be read" in Notice.objects.get(kind="operator_stop").note


def test_forged_rows_tell_nobody_what_they_may_not_know(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    """A delivery to a stranger, inserted with the application's rights, is checked again."""
    approval = asked(stage, tools)
    stranger = somebody("mallory", "integrator", email="mallory@example.org")
    notice = Notice.objects.get(kind="opened", approval_id=approval.pk)
    Delivery.objects.create(notice=notice, by="email", person=stranger.person, due_at=now(), made_at=now())
    deliver()
    assert postbox.mails == [] and Delivery.objects.get().state == "needless"


def test_a_server_that_says_later_gets_the_same_later(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    fiona()
    asked(stage, tools)
    postbox.answers = ["451 later", "452 later still"]
    deliver()
    row = Delivery.objects.get()
    assert row.state == "waiting" and row.due_at > now() + timedelta(seconds=15) and "451 later" in row.note
    soon()
    deliver()
    soon()
    deliver()
    row.refresh_from_db()
    assert (row.state, [one["outcome"] for one in row.tries]) == ("sent", ["failed", "failed", "sent"])
    assert postbox.mails[0]["Message-ID"] == f"<{row.message}@example.org>"


def prefer(by: Actor, **more: Any) -> None:
    preferences.save_settings(PreferenceBody(**more), by=by)


def test_a_digest_is_one_mail_of_all_that_still_waits(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    by = fiona()
    prefer(by, digest="hourly")
    first, second, third = (asked_again(stage, tools, n) for n in range(3))
    deliver()
    assert postbox.mails == [] and set(states()) == {("email", "waiting")}
    say(second, by)
    soon()
    deliver()
    (mail,) = postbox.mails
    assert mail["Subject"].startswith("2 notifications, first: ")
    assert all(str(one.pk) in postbox.text() for one in (first, third)) and str(second.pk) not in postbox.text()
    assert sorted(state for _, state in states()) == ["needless", "sent", "sent"]


def asked_again(stage: Stage, tools: Toolbox, n: int) -> Approval:
    known = set(Approval.objects.values_list("pk", flat=True))
    stage.start(buying(tools, 5000 + n))
    assert stage.drive() == "parked"
    return Approval.objects.exclude(pk__in=known).get()


def test_nobody_is_told_what_they_switched_off(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    prefer(fiona(), ways={"opened": []})
    asked(stage, tools)
    deliver()
    assert postbox.mails == [] and Notice.objects.get(kind="opened").note == "it has no recipients"


def quiet(*, begins: int, ends: int) -> dict[str, Any]:
    return {name: f"{now() + timedelta(hours=n):%H:%M}" for name, n in (("quiet_from", begins), ("quiet_until", ends))}


def test_quiet_hours_are_kept_and_end_in_one_mail(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    by = fiona()
    for n in range(2):
        asked_again(stage, tools, n)
    addressing.address_all()
    prefer(by, **quiet(begins=-1, ends=2))
    frank = somebody("frank", "approver_finance", email="frank@example.org")
    preferences.request_test(by=frank)
    deliver()
    assert postbox.to == ["frank@example.org"], "nobody else waits for her morning"
    waiting = Delivery.objects.filter(person=by.person)
    assert {(row.state, row.is_grouped, row.tries == []) for row in waiting} == {("waiting", True, True)}
    assert all(timedelta(minutes=100) < row.due_at - now() <= timedelta(hours=2) for row in waiting)
    prefer(by)
    soon()
    deliver()
    assert len(postbox.mails) == 2 and "2 notifications" in postbox.mails[-1]["Subject"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"zone": "../etc/passwd"}, "zone"),
        ({"quiet_from": "22:00"}, "quiet_until"),
        ({"quiet_from": "22:00", "quiet_until": "22:00"}, "quiet_until"),
        ({"ways": {"nothing": []}}, "ways"),
    ],
)
def test_what_can_not_be_is_refused_by_the_field(stage: Stage, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        prefer(fiona(), **wrong)
    assert [error["field"] for error in refused.value.extra["errors"]] == [field]


def test_the_sweep_tells_of_what_is_overdue(stage: Stage, postbox: Postbox) -> None:
    somebody("olga", "operator", email="olga@example.org")
    run = stage.start(agent_of(ends_with("done")))
    Wait.objects.create(
        id="00000000-0000-4000-8000-000000000002",
        run_id=run.pk,
        slot="operator/1",
        kind="operator",
        opened_at=now(),
        deadline=now() - timedelta(seconds=1),
        detail={"title": "Needs an operator", "reason": "poison"},
    )
    timers.sweep()
    assert sorted(Notice.objects.values_list("kind", flat=True)) == ["operator_stop", "overdue"]


@pytest.fixture
def ann(stage: Stage) -> Actor:
    return somebody("ann", "operator", email="ann@example.org")


@pytest.fixture
def ben(stage: Stage) -> Actor:
    return somebody("ben", "operator", email="ben@example.org")


@pytest.fixture
def run(stage: Stage, tools: Toolbox, ann: Actor, ben: Actor, postbox: Postbox) -> Any:
    boss()
    somebody("second", is_superuser=True, is_staff=True)
    somebody("ada", "auditor", email="ada@example.org")
    somebody("fiona", "approver_finance", email="fiona@example.org")
    guarded(*FAMILIES)
    found = Situations(stage, tools).make("unknown")
    deliver()
    assert sorted(postbox.to) == ["ann@example.org", "ben@example.org"]
    postbox.mails.clear()
    postbox.to.clear()
    return found


def test_the_others_are_told_who_says_what(run: Run, ann: Actor, postbox: Postbox) -> None:
    says(run, ann)
    deliver()
    assert postbox.to == ["ben@example.org"]
    text = postbox.text()
    assert "Confirm outcome" in postbox.mails[0]["Subject"] and "user:ann: it happened" in text
    assert f"/runs/{run.pk}" in text and "seen there" not in text, "no receipt leaves in a mail"
    deliver()
    assert len(postbox.mails) == 1


def test_each_word_is_told_once_and_what_is_over_to_nobody(run: Run, ann: Actor, ben: Actor, postbox: Postbox) -> None:
    says(run, ann)
    says(run, ben, DID_NOT)
    deliver()
    assert postbox.to == ["ann@example.org"], "what ann had said doesn't stand any more"
    says(run, ann)
    agreeing.take_back(run.id, waiting(run)[0].pk, by=ann, justification=WHY)
    deliver()
    assert len(postbox.mails) == 1
    says(run, ann)
    says(run, ben)
    deliver()
    assert len(postbox.mails) == 1
    assert set(Notice.objects.filter(kind="outcome_said").values_list("state", flat=True)) == {"over", "addressed"}


def test_who_is_no_operator_any_more_is_told_nothing(run: Run, ann: Actor, ben: Actor, postbox: Postbox) -> None:
    says(run, ann)
    User.objects.get(pk=ben.person).groups.clear()
    deliver()
    assert postbox.to == []


def test_a_void_word_is_told_to_nobody(run: Run, stage: Stage, ann: Actor, ben: Actor, postbox: Postbox) -> None:
    says(run, ann)
    refused_late(stage, run)
    deliver()
    assert postbox.to == []
