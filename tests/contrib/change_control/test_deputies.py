"""Nobody names another's deputy alone if two people must change queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals.models import Approval
from approvals.queue_models import Deputy
from durableagents.contrib.calendars import absences as away
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars.models import Absence
from durableagents.contrib.calendars.services import AbsenceBody, DeputyBody
from durableagents.contrib.change_control import services as changes
from durableagents.contrib.change_control.verify import check_changes
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput
from ledger.verification.registers import protected_rows
from tests.contrib.change_control.test_rule_changes import agreed, anna, bert, guarded, proposed
from tests.integration.approvals.setup import WHY, asked, say, somebody
from tests.integration.runs.stage import Stage
from tests.rewriting import rewrite
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert", "guarded"]  # fixtures


@pytest.fixture
def fay(stage: Stage) -> Actor:
    return somebody("fay", "approver_finance")


def until(days: float = 3) -> datetime:
    return timezone.now() + timedelta(days=days)


def appointed(by: Actor, deputy: str = "anna", principal: str = "fay", **more: Any) -> Any:
    return deputies.name_deputy(
        DeputyBody(**{"deputy": deputy, "principal": principal, "ends_at": until(), "justification": WHY} | more), by=by
    )


def left(by: Actor, deputy: str = "anna", person: str = "fay", **more: Any) -> Any:
    return away.record_absence(
        AbsenceBody(**{"deputy": deputy, "person": person, "ends_at": until(), "justification": WHY} | more), by=by
    )


BOTH = pytest.mark.parametrize("act", [appointed, left])


def nothing_stands() -> bool:
    return not Deputy.objects.exists() and not Absence.objects.exists()


@BOTH
def test_one_administrator_alone_gives_nobody_the_power_to_decide(
    stage: Stage, tools: Toolbox, fay: Actor, guarded: None, anna: Actor, bert: Actor, act: Callable[..., Any]
) -> None:
    approval = asked(stage, tools)
    change = proposed(lambda: act(anna))
    assert change.family == "queues" and nothing_stands()
    with pytest.raises(Forbidden, match="Only approver_finance decides"):
        say(approval, anna)
    with pytest.raises(Forbidden, match="You proposed this change"):
        agreed(change, anna)
    assert agreed(change, bert).state == "applied"
    row = Deputy.objects.get()
    assert row.is_authentic and (row.set_by, row.principal, row.deputy) == ("user:anna", fay.person, anna.person)
    if act is left:
        assert Absence.objects.get().deputy == row and Absence.objects.get().is_authentic
    assert check_changes().problems == [] and protected_rows().problems == []  # type: ignore[union-attr]


@BOTH
@pytest.mark.parametrize("who", ["who proposed it", "who agreed"])
def test_neither_of_the_two_decides_by_it_what_was_asked_before(
    stage: Stage, tools: Toolbox, fay: Actor, guarded: None, anna: Actor, bert: Actor, act: Callable[..., Any], who: str
) -> None:
    approval = asked(stage, tools)
    deputy = anna if who == "who proposed it" else bert
    agreed(proposed(lambda: act(anna, deputy.name)), bert)
    with pytest.raises(Forbidden, match="You changed the members of this role"):
        say(approval, deputy)
    assert Approval.objects.get().state == "open"


def test_whom_two_people_named_decides(
    stage: Stage, tools: Toolbox, fay: Actor, guarded: None, anna: Actor, bert: Actor
) -> None:
    somebody("olga", "operator")
    approval = asked(stage, tools)
    agreed(proposed(lambda: appointed(anna, "olga", queue="finance_po")), bert)
    olga = User.objects.get(username="olga")
    assert say(approval, Actor("user", "olga", auth="session", person=olga.pk)).state == "approved"


@BOTH
def test_a_key_names_nobodys_deputy_since_an_administrator_makes_keys_for_others(
    fay: Actor, guarded: None, act: Callable[..., Any]
) -> None:
    key_of_fay = replace(fay, kind="key", name="made by anna", auth="api_key")
    for name in ("", "fay"):
        with pytest.raises(Forbidden, match="signed in"):
            act(key_of_fay, "anna", name)
    assert nothing_stands() and left(key_of_fay, "", "").set_by == "key:made by anna"


def _closed() -> None:
    rewrite(User.objects.filter(username="anna2"), is_active=False)


def _without_role() -> None:
    User.objects.get(username="anna2").groups.clear()


def _decides_no_more() -> None:
    User.objects.get(username="fay").groups.set([Group.objects.get_or_create(name="operator")[0]])


def _principal_gone() -> None:
    rewrite(User.objects.filter(username="fay"), is_active=False)


def _another_of_that_name() -> None:
    rewrite(User.objects.filter(username="anna2"), username="anna3")
    somebody("anna2", "operator")


def _another_is_away() -> None:
    rewrite(User.objects.filter(username="fay"), username="fae")
    somebody("fay", "approver_finance")


@pytest.mark.every(4)
@BOTH
@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        (_closed, InvalidInput),
        (_without_role, InvalidInput),
        (_decides_no_more, InvalidInput),
        (_principal_gone, InvalidInput),
        (_another_of_that_name, changes.ChangedMeanwhile),
        (_another_is_away, changes.ChangedMeanwhile),
    ],
)
def test_what_is_otherwise_by_then_is_not_put_in_force(
    fay: Actor,
    guarded: None,
    anna: Actor,
    bert: Actor,
    act: Callable[..., Any],
    meanwhile: Callable[[], None],
    error: type[DurableAgentsError],
) -> None:
    somebody("anna2", "operator")
    change = proposed(lambda: act(anna, "anna2"))
    meanwhile()
    with pytest.raises(error):
        agreed(change, bert)
    assert nothing_stands() and changes.find(change.pk).state == "open"
