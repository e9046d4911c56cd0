"""Two administrators with the same page open: who comes second is told what the first one set, and takes nothing of it
back without having seen it; and nobody takes the last administrator's right away."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from approvals.models import Calendar, Queue, Timing
from approvals.queue_models import Limit
from durableagents.identity import rights
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, Moved
from ledger.four_eyes import changes, guards
from ledger.four_eyes.guards import GuardsBody
from ledger.models import ActRecord, RuleChange
from tests.integration.console.conftest import Reader, text_of
from tests.integration.console.test_deadlines import DE, WEEK
from tests.integration.console.test_refused_forms import Forms

pytestmark = pytest.mark.django_db
WHY = "as agreed"
PAGE, CALENDAR = "/queues/of/finance_po", "/queues/calendars/of/DE"
# Of each form of a queue's page: what the first one sets there, and what the second one does.
SET = {
    "changes": ({"title": "Orders"}, {"currency": "EUR"}),
    "proofs": ({"minutes": "5"}, {"type_amount": "on"}),
    "reasons": ({"reasons": "A good price"}, {"reasons": "Cheap"}),
    "grants": ({"times": "3", "days": "3"}, {"times": "5", "days": "1"}),
    "timings": ({"remind": "50"}, {"remind": "80"}),
}


@pytest.fixture
def anna(db: None) -> Reader:
    return Reader(User.objects.create_superuser("anna"))


@pytest.fixture
def bert(db: None) -> Reader:
    return Reader(User.objects.create_superuser("bert"))


def of(reader: Reader) -> Actor:
    assert reader.user is not None
    return Actor("user", reader.user.username, role="admin", auth="session", person=reader.user.pk)


def form(reader: Reader, page: str, act: str) -> dict[str, str]:
    """What a browser sends of that form, untouched."""
    return Forms(reader.get(page)).sent[act] | {"justification": WHY}


def stored() -> list[Any]:
    return [*Queue.objects.order_by("pk").values(), *Timing.objects.values(), *Calendar.objects.values()]


@pytest.mark.parametrize("act", SET)
def test_who_comes_second_to_a_queues_form_is_told_and_may_say_it_again(anna: Reader, bert: Reader, act: str) -> None:
    first, second = SET[act]
    at = f"{PAGE}/{act}"
    stale = form(bert, PAGE, at) | second
    assert anna.post(at, **form(anna, PAGE, at) | first).status_code == 302
    before = stored()
    answer = bert.post(at, **stale)
    assert answer.status_code == 409 and "was set anew by user:anna meanwhile" in text_of(answer)
    assert stored() == before and ActRecord.objects.count() == 1
    shown = Forms(answer).sent[at]
    assert shown["seen"] != stale["seen"] and {**shown, "seen": ""} == {**stale, "seen": ""}, "the words are kept"
    assert bert.post(at, **shown).status_code == 302, "who has been told may say it again"
    assert ActRecord.objects.count() == 2


@pytest.mark.parametrize("whose", ["", "vera"])
@pytest.mark.parametrize("act", ["limits", "lifts"])
def test_a_limit_that_nobody_saw_is_neither_set_over_nor_lifted(
    anna: Reader, bert: Reader, act: str, whose: str
) -> None:
    for name in ("vera", "nils"):
        User.objects.create_user(name)
    at, limits = f"{PAGE}/{act}", f"{PAGE}/limits"
    mine = {"person": whose} | ({"most": "700"} if act == "limits" else {})

    def set_by_anna(person: str, most: str) -> None:
        answer = anna.post(limits, **form(anna, PAGE, limits) | {"person": person, "most": most})
        assert answer.status_code == 302

    def held() -> list[Any]:
        return [
            int(most) for most in Limit.objects.filter(ended_at=None, person=of_whose).values_list("most", flat=True)
        ]

    of_whose = User.objects.get(username=whose).pk if whose else None
    if act == "lifts":
        set_by_anna(whose, "100")
    stale = form(bert, PAGE, at) | mine
    set_by_anna(whose, "500")
    answer = bert.post(at, **stale)
    assert answer.status_code == 409 and "was set anew by user:anna meanwhile" in text_of(answer)
    assert f"The limit of {whose or 'approver_finance'}" in text_of(answer) and held() == [500]
    shown = Forms(answer).sent[at]
    assert shown["seen"] != stale["seen"] and {**shown, "seen": ""} == {**stale, "seen": ""}, "the words are kept"
    set_by_anna("nils", "9")  # somebody else's is nobody's hindrance
    assert bert.post(at, **shown).status_code == 302 and held() == ([700] if act == "limits" else [])
    stale = form(bert, PAGE, limits) | {"person": whose, "most": "900"}
    if act == "limits":
        lifts = f"{PAGE}/lifts"
        assert anna.post(lifts, **form(anna, PAGE, lifts) | {"person": whose}).status_code == 302
        answer = bert.post(limits, **stale)
        assert answer.status_code == 409 and "by user:anna" in text_of(answer) and held() == []
        stale = Forms(answer).sent[limits]
    assert bert.post(limits, **stale).status_code == 302 and held() == [900]


def test_what_was_seen_still_has_to_hold_when_a_second_person_confirms_a_limit(anna: Reader, bert: Reader) -> None:
    at, later = f"{PAGE}/limits", []
    guards.require(GuardsBody(families=["queues", "roles"], justification=WHY), by=of(anna))
    for most in ("100", "200"):
        assert anna.post(at, **form(anna, PAGE, at) | {"most": most}).status_code == 302
        later.append(RuleChange.objects.latest("made_at").pk)
    changes.apply(later[0], by=of(bert), justification=WHY)
    with pytest.raises(DurableAgentsError, match="was set anew by user:anna meanwhile"):
        changes.apply(later[1], by=of(bert), justification=WHY)
    assert [row.most for row in Limit.objects.filter(ended_at=None)] == [100]


@pytest.mark.parametrize("seen", ["", "USD x", "\x00", "USD 9999999999999999999999", "EUR", "usd"])
def test_what_no_page_of_ours_says_was_seen_is_refused_and_nothing_is_set(anna: Reader, seen: str) -> None:
    anna.post(f"{PAGE}/limits", person="", most="5", justification=WHY)
    answer = anna.post(f"{PAGE}/limits", person="", most="7", seen=seen, justification=WHY)
    assert answer.status_code in (409, 422) and [int(row.most or 0) for row in Limit.objects.all()] == [5]


def test_a_limit_is_in_the_currency_that_was_seen(anna: Reader, bert: Reader) -> None:
    at, change = f"{PAGE}/limits", f"{PAGE}/changes"
    stale = form(bert, PAGE, at) | {"most": "1000"}
    assert anna.post(change, **form(anna, PAGE, change) | {"currency": "JPY"}).status_code == 302
    answer = bert.post(at, **stale)
    assert answer.status_code == 409 and "by user:anna" in text_of(answer) and not Limit.objects.exists()
    assert bert.post(at, **Forms(answer).sent[at]).status_code == 302 and Limit.objects.get().currency == "JPY"


def test_a_calendar_is_added_over_none_and_changed_over_what_was_seen(anna: Reader, bert: Reader) -> None:
    assert anna.post("/queues/calendars/new", **DE | WEEK).status_code == 302
    answer = bert.post("/queues/calendars/new", **DE | WEEK | {"tue": ""})
    assert answer.status_code == 422 and "is that of the calendar DE" in text_of(answer)
    at = f"{CALENDAR}/changes"
    stale = form(bert, CALENDAR, at) | {"fri": ""}
    assert anna.post(at, **form(anna, CALENDAR, at) | {"sat": "10:00-12:00"}).status_code == 302
    answer = bert.post(at, **stale)
    assert answer.status_code == 409 and "was set anew by user:anna meanwhile" in text_of(answer)
    assert Calendar.objects.count() == 2
    shown = Forms(answer).sent[at] | {"justification": WHY}
    assert bert.post(at, **shown).status_code == 302 and Calendar.objects.count() == 3
    stale = form(bert, CALENDAR, at) | {"mon": ""}
    assert anna.post(f"{CALENDAR}/removals", justification=WHY).status_code == 302
    assert bert.post(at, **stale).status_code == 404
    assert anna.post("/queues/calendars/new", **DE | WEEK).status_code == 302, "one that was removed is none"


def test_a_role_that_was_given_meanwhile_is_not_taken_back_unseen(anna: Reader, bert: Reader) -> None:
    vera = User.objects.create_user("vera")
    page, at = f"/people/{vera.pk}", f"/people/{vera.pk}/roles"
    stale = Forms(bert.get(page)).sent[at]["seen"]
    assert anna.client.post(at, {"roles": ["auditor"], "seen": stale, "justification": WHY}).status_code == 302
    answer = bert.client.post(at, {"roles": ["operator"], "seen": stale, "justification": WHY})
    assert answer.status_code == 409 and "What vera holds was set anew meanwhile" in text_of(answer)
    assert [group.name for group in vera.groups.all()] == ["auditor"]
    page_now = answer.content.decode()
    assert re.search(r'value="operator"\s+checked', page_now) and not re.search(r'value="auditor"\s+checked', page_now)
    assert f'value="{WHY}"' in page_now and Forms(answer).sent[at]["seen"] != stale, "as it was sent, of how it is now"
    seen = Forms(bert.get(page)).sent[at]["seen"]
    assert bert.client.post(at, {"roles": ["operator"], "seen": seen, "justification": WHY}).status_code == 302
    with pytest.raises(Moved):
        rights.set_roles(vera.pk, [], False, seen=seen, by=of(anna), justification=WHY)


# --- the last administrator ---


def rules() -> list[str]:
    found = User.objects.filter(is_superuser=True, is_active=True)
    return sorted(found.values_list("username", flat=True))


def test_the_last_administrator_stays_one(anna: Reader) -> None:
    assert anna.user is not None
    at = f"/people/{anna.user.pk}/roles"
    answer = anna.client.post(at, {"roles": ["operator"], "justification": WHY})
    assert answer.status_code == 409 and "Nobody but anna administers" in text_of(answer)
    assert rules() == ["anna"] and not anna.user.groups.exists() and not ActRecord.objects.exists()
    assert anna.client.post(at, {"roles": ["operator"], "is_admin": "yes", "justification": WHY}).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_of_two_who_take_it_from_each_other_at_once_one_stays() -> None:
    for n in range(5):
        User.objects.all().delete()
        two = [Reader(User.objects.create_superuser(f"{name}{n}")) for name in ("anna", "bert")]

        def take(pair: tuple[Reader, Reader]) -> int:
            by, whose = pair
            assert whose.user is not None
            try:
                at = f"/people/{whose.user.pk}/roles"
                return int(by.client.post(at, {"justification": WHY}).status_code)
            finally:
                connection.close()

        with ThreadPoolExecutor(2) as both:
            answers = sorted(both.map(take, [(two[0], two[1]), (two[1], two[0])]))
        assert len(rules()) == 1 and answers[0] == 302 and answers[1] in (403, 409, 503), answers
    assert Group.objects.exists()


# --- a channel --------------------------------------------------------------------------------------------------------
