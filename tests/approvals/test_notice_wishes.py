"""What people choose: quiet hours, digests, by which way; and what a browser shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db.models import F

from approvals.models import Approval, Delivery, Notice
from approvals.notices import addressing, courier, own
from approvals.notices.bodies import PreferenceBody
from approvals.notices.tell import tell
from approvals.notices.timing import next_quarter
from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.models import ActRecord
from runs.models import Wait
from runs.workers import timers
from tests.approvals.post import Postbox
from tests.approvals.setup import asked, boss, buying, say, somebody
from tests.approvals.test_notices import deliver, fiona, soon, states
from tests.runs.stage import Stage, now
from tests.world import Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db


def prefer(by: Actor, **more: Any) -> None:
    own.prefer(PreferenceBody(**more), by=by)


def test_who_wants_a_digest_gets_one_mail_of_all_and_only_of_what_still_waits(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    by = fiona()
    prefer(by, digest="hourly")
    first, second, third = (asked_again(stage, tools, n) for n in range(3))
    deliver()
    assert postbox.mails == [] and set(states()) == {("email", "waiting")}
    say(second, by)
    soon()
    deliver()
    (mail,) = postbox.mails
    assert mail["Subject"].startswith("2 things wait; the first: ")
    assert all(str(one.pk) in postbox.text() for one in (first, third)) and str(second.pk) not in postbox.text()
    assert sorted(state for _, state in states()) == ["needless", "sent", "sent"]


def asked_again(stage: Stage, tools: Toolbox, n: int) -> Approval:
    known = set(Approval.objects.values_list("pk", flat=True))
    stage.start(buying(tools, 5000 + n))
    assert stage.drive() == "parked"
    return Approval.objects.exclude(pk__in=known).get()


def test_a_digest_that_was_half_sent_is_repeated_as_the_same_message(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    prefer(fiona(), digest="hourly")
    for n in range(2):
        asked_again(stage, tools, n)
    addressing.address_all()
    soon()
    unit = courier._take("email")
    assert unit is not None and len(unit.deliveries) == 2
    asked_again(stage, tools, 2)
    addressing.address_all()
    soon()
    deliver()
    assert len(postbox.mails) == 2, "what came later is another message"
    sent = {mail["X-Durable-Agents-Message"] for mail in postbox.mails}
    assert str(unit.message) in sent and len(sent) == 2
    again = Delivery.objects.filter(message=unit.message)
    assert {tuple(one["outcome"] for one in row.tries) for row in again} == {("unknown", "sent")}


def test_nobody_is_told_what_they_switched_off(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    prefer(fiona(), ways={"opened": []})
    asked(stage, tools)
    deliver()
    assert postbox.mails == [] and Notice.objects.get(kind="opened").note == "nobody is told of it"


def quiet(*, begins: int, ends: int) -> dict[str, Any]:
    """Quiet hours, by hours from now."""
    return {name: f"{now() + timedelta(hours=n):%H:%M}" for name, n in (("quiet_from", begins), ("quiet_until", ends))}


def test_quiet_hours_that_began_meanwhile_are_kept_and_end_in_one_mail(
    stage: Stage, tools: Toolbox, postbox: Postbox
) -> None:
    by = fiona()
    for n in range(2):
        asked_again(stage, tools, n)
    addressing.address_all()
    prefer(by, **quiet(begins=-1, ends=2))
    frank = somebody("frank", "approver_finance", email="frank@example.org")
    own.ask_for_test(by=frank)
    deliver()
    assert postbox.to == ["frank@example.org"], "nobody else waits for her morning"
    waiting = Delivery.objects.filter(person=by.person)
    assert {(row.state, row.is_grouped, row.tries == []) for row in waiting} == {("waiting", True, True)}
    assert all(timedelta(minutes=100) < row.due_at - now() <= timedelta(hours=2) for row in waiting)
    prefer(by)
    soon()
    deliver()
    assert len(postbox.mails) == 2 and "2 things wait" in postbox.mails[-1]["Subject"]


def test_who_has_switched_it_off_meanwhile_is_not_told(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    by = fiona()
    asked(stage, tools)
    own.ask_for_test(by=by)
    addressing.address_all()
    prefer(by, ways={"opened": ["push"]})
    deliver()
    assert [mail["Subject"] for mail in postbox.mails] == ["Test: a notification arrives"]
    assert "don't want to be told" in Delivery.objects.get(state="needless").note


def test_a_flood_becomes_one_mail_every_quarter_of_an_hour(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    fiona()
    approval = asked(stage, tools)
    notice = Notice.objects.get(kind="opened")
    for n in range(addressing.FLOOD + 5):
        tell("reminder", str(n), run_id=approval.run_id, approval_id=approval.pk)
    Notice.objects.filter(pk=notice.pk).delete()
    addressing.address_all()
    told = Delivery.objects.order_by("pk")
    assert [row.due_at == row.made_at for row in told] == [True] * addressing.FLOOD + [False] * 5
    assert all(row.is_grouped and row.due_at == next_quarter(row.made_at) for row in told[addressing.FLOOD :])
    soon()
    deliver()
    assert len(postbox.mails) == addressing.FLOOD + 1 and "5 things wait" in postbox.mails[-1]["Subject"]


def test_a_browser_is_told_only_what_was_asked_for_and_once(stage: Stage, tools: Toolbox) -> None:
    by = fiona()
    user = User.objects.get(pk=by.person)
    asked(stage, tools)
    deliver()
    assert own.show(user) == []
    prefer(by, ways={"opened": ["browser"]})
    second = asked_again(stage, tools, 1)
    third = asked_again(stage, tools, 2)
    deliver()
    say(third, by)
    (shown,) = own.show(user)
    assert shown["title"] == "To decide: Pay, $5,001" and shown["url"] == f"/inbox/{second.pk}"
    assert own.show(user) == [] and sorted(states()) == [("browser", "needless"), ("browser", "sent")]


def test_a_browser_is_not_told_of_what_happened_long_ago(stage: Stage, tools: Toolbox) -> None:
    by = fiona()
    prefer(by, ways={"opened": ["browser"]})
    asked(stage, tools)
    deliver()
    Delivery.objects.update(due_at=F("due_at") - timedelta(hours=1))
    assert own.show(User.objects.get(pk=by.person)) == []
    assert Delivery.objects.get().note == "no page was open to show it"


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


def test_how_somebody_is_told_is_on_record(stage: Stage) -> None:
    prefer(fiona(), digest="daily", digest_at="07:30", zone="Europe/Berlin")
    record = ActRecord.objects.get(action="notice_settings")
    assert (record.by, record.before["digest"], record.after["digest"]) == ("user:fiona", "none", "daily")


def test_a_test_goes_to_oneself_alone_and_once_a_minute(stage: Stage, postbox: Postbox) -> None:
    by = fiona()
    somebody("frank", "approver_finance", email="frank@example.org")
    for _ in range(3):
        own.ask_for_test(by=by)
    deliver()
    assert set(postbox.to) == {"fiona@example.org"} and len(postbox.to) <= 2
    assert postbox.mails[0]["Subject"] == "Test: a notification arrives"


def test_a_group_that_is_no_role_is_told_nothing(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    user = User.objects.create_user("g", email="g@example.org")
    user.groups.add(Group.objects.get_or_create(name="finance_po")[0])
    asked(stage, tools)
    deliver()
    assert postbox.mails == []


def test_the_admin_is_told_nothing_by_being_one(stage: Stage, tools: Toolbox, postbox: Postbox) -> None:
    User.objects.filter(pk=boss().person).update(email="boss@example.org")
    asked(stage, tools)
    tell("operator_stop", "x")
    deliver()
    assert postbox.mails == []


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
