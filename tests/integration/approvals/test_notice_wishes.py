"""What people choose: quiet hours, digests, by which way; and what a browser shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from approvals.models import Approval, Delivery, Notice
from approvals.notices import addressing, own
from approvals.notices.bodies import PreferenceBody
from ledger.actors import Actor
from ledger.errors import InvalidInput
from runs.models import Wait
from runs.workers import timers
from tests.integration.approvals.post import Postbox
from tests.integration.approvals.setup import asked, buying, say, somebody
from tests.integration.approvals.test_notices import deliver, fiona, soon, states
from tests.integration.runs.stage import Stage, now
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
