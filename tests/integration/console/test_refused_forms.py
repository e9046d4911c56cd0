"""Refused forms and concurrent edits: nothing typed is lost or overwritten unseen."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from approvals.queue_models import Limit
from approvals.queues.labels import FIELDS, fields_in
from durableagents.identity import rights
from ledger.actors import Actor
from ledger.errors import Moved
from ledger.models import ActRecord
from runs import features
from tests.cases import each_case
from tests.integration.console.conftest import Forms, Reader, text_of

pytestmark = pytest.mark.django_db
WHY = "because it is so"
QUEUE = "/queues/of/finance_po"
CALENDAR = {
    "zone": "Europe/Berlin",
    "mon": "09:00-17:00",
    "tue": "",
    "wed": "",
    "thu": "",
    "fri": "",
    "sat": "",
    "sun": "",
    "holidays": "",
}
RULE = {
    "agent": "",
    "tool": "",
    "condition": "cost > 5",
    "effect": "require",
    "queue": "legal",
    "within_hours": "5",
    "rule": "Dear things need the law",
    "proof_minutes": "5",
    "second_factor": "on",
    "type_amount": "on",
}


@pytest.fixture
def boss(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def refused_and_given_back(boss: Reader, page: str, act: str, typed: dict[str, str]) -> None:
    """Send a form that is refused; assert that it keeps what was typed and the other forms keep their values."""
    before = Forms(boss.get(page)).sent
    assert act in before, (act, [*before])
    if "seen" in before[act]:
        typed = typed | {"seen": before[act]["seen"]}
    answer = boss.post(act, **typed)
    assert answer.status_code in (409, 422), answer.status_code
    after = Forms(answer).sent
    assert after[act] == typed
    assert {each: sent for each, sent in after.items() if each != act} == {
        each: sent for each, sent in before.items() if each != act
    }


BOXES = {"second_factor": "on", "type_amount": "on", "type_target": "on"}


@pytest.mark.needs("calendars", "standing_approvals", "step_up")
@each_case(
    ("act", "typed"),
    [
        ("proofs", {"above": "100", "risk": "high", "minutes": "-5", **BOXES}),
        ("proofs", {"above": "100", "risk": "", "minutes": "-5"}),
        ("changes", {"title": "", "role": "nope", "currency": "EUR", "needs_amount": "on"}),
        ("changes", {"title": "Orders", "role": "nope", "currency": ""}),
        ("limits", {"person": "nobody at all", "most": "7"}),
        ("lifts", {"person": "nobody at all"}),
        ("removals", {"justification": "x" * 5000}),
        ("closings", {"justification": "x" * 5000}),
        ("reasons", {"reasons": "y" * 300}),
        ("grants", {"times": "-1", "days": "3", "sum": "2"}),
        (
            "timings",
            {
                "calendar": "",
                "on_timeout": "escalate",
                "to1": "legal",
                "hours1": "soon",
                "to2": "",
                "hours2": "",
                "to3": "",
                "hours3": "",
                "remind": "50",
                "every_hours": "",
                "clock_stops_hours": "2",
                "at_once_if_away": "on",
            },
        ),
    ],
)
@each_case("is_set", [False, True])
def test_a_refused_form_of_a_queue(boss: Reader, act: str, typed: dict[str, str], is_set: bool) -> None:
    if is_set:
        ticked = {"above": "5000", "risk": "low", "minutes": "5", **BOXES, "justification": WHY}
        assert boss.post(f"{QUEUE}/proofs", **ticked).status_code == 302
        changed = {"title": "Orders of ours", "needs_amount": "on", "justification": WHY}
        assert boss.post(f"{QUEUE}/changes", **changed).status_code == 302
    refused_and_given_back(boss, QUEUE, f"{QUEUE}/{act}", {"justification": WHY, **typed})


def test_a_refused_opening_keeps_its_reason(boss: Reader) -> None:
    assert boss.post(f"{QUEUE}/closings", justification=WHY).status_code == 302
    refused_and_given_back(boss, QUEUE, f"{QUEUE}/openings", {"justification": "x" * 5000})
    answer = boss.post(f"{QUEUE}/closings", justification="for good")
    assert answer.status_code == 409 and Forms(answer).sent[f"{QUEUE}/openings"] == {"justification": "for good"}


@pytest.mark.needs("calendars")
@each_case(
    ("act", "typed"),
    [
        ("/queues/calendars/of/DE/changes", CALENDAR | {"mon": "always", "zone": ""}),
        ("/queues/calendars/of/DE/removals", {"justification": "x" * 5000}),
    ],
)
def test_a_refused_form_of_a_calendar(boss: Reader, act: str, typed: dict[str, str]) -> None:
    made = CALENDAR | {"name": "DE", "holidays": "2026-12-25 Christmas Day", "justification": WHY}
    assert boss.post("/queues/calendars/new", **made).status_code == 302
    refused_and_given_back(boss, "/queues/calendars/of/DE", act, {"justification": WHY, **typed})


@pytest.mark.needs("calendars")
def test_a_refused_calendar_is_kept(boss: Reader) -> None:
    typed = CALENDAR | {"name": "DE", "mon": "always", "tue": "", "justification": WHY}
    refused_and_given_back(boss, "/queues/calendars", "/queues/calendars/new", typed)


@pytest.mark.needs("policies")
@each_case(
    ("act", "typed"),
    [
        ("versions", RULE | {"condition": "cost >", "seen": "1"}),
        ("versions", {**{name: text for name, text in RULE.items() if text != "on"}, "condition": "(", "seen": "1"}),
        ("retirements", {"justification": "x" * 5000}),
    ],
)
def test_a_refused_form_of_a_policy(boss: Reader, act: str, typed: dict[str, str]) -> None:
    assert boss.post("/policies/new", **RULE, name="dear", justification=WHY).status_code == 302
    refused_and_given_back(boss, "/policies/of/dear", f"/policies/of/dear/{act}", {"justification": WHY, **typed})


@pytest.mark.needs("policies")
def test_a_policy_that_was_tried_keeps_the_reason_for_it(boss: Reader) -> None:
    typed = RULE | {"name": "dear", "justification": WHY}
    assert Forms(boss.post("/policies/tries", **typed)).sent["/policies/new"] == typed
    refused_and_given_back(boss, "/policies", "/policies/new", typed | {"condition": "("})


@pytest.mark.needs("change_control")
@each_case(
    ("act", "typed"),
    [
        ("/queues/new", {"name": "Refunds", "title": "R", "role": "nope", "currency": "EUR", "needs_amount": "on"}),
        ("/queues/absences", {"person": "nobody at all", "deputy": "", "starts_at": "", "ends_at": "2031-01-01T09:00"}),
        (
            "/queues/deputies",
            {
                "principal": "nobody at all",
                "deputy": "boss",
                "queue": "legal",
                "starts_at": "",
                "ends_at": "2031-01-01T09:00",
            },
        ),
    ],
)
def test_a_refused_form_of_all_queues(boss: Reader, act: str, typed: dict[str, str]) -> None:
    refused_and_given_back(boss, "/queues", act, {"justification": WHY, **typed})


@pytest.mark.needs("notifications")
def test_refused_wishes_about_notices_are_kept(boss: Reader) -> None:
    before = Forms(boss.get("/notifications")).sent["/notifications/settings"]
    boxes = {name: "on" for name in before if "." in name}
    for wished in ({"opened.browser": "on"}, boxes):
        typed = {**wished, "zone": "Mars", "digest": "daily", "quiet_from": "", "quiet_until": "", "digest_at": "09:00"}
        refused_and_given_back(boss, "/notifications", "/notifications/settings", typed)


PAGES = {
    QUEUE: (
        *(
            "QueueLimits QueueLifts QueueProofs QueueChanges QueueClosings QueueRemovals QueueReasons QueueGrants "
            "QueueTimings"
        ).split(),
    ),
    "/queues": ("add_queue", "absence", "deputy"),
    "/queues/calendars": ("add_calendar",),
    "/queues/calendars/of/DE": ("CalendarChanges", "CalendarRemovals"),
    "/policies": ("add",),
    "/policies/of/dear": ("change", "retire"),
}
MADE = CALENDAR | {"name": "DE", "holidays": "2026-12-25 Christmas Day", "justification": WHY}


@pytest.fixture
def boss_of_all(db: None) -> Reader:
    reader = Reader(User.objects.create_superuser("boss"))
    assert reader.post("/queues/calendars/new", **MADE).status_code == 302
    assert reader.post("/policies/new", **RULE, name="dear", justification=WHY).status_code == 302
    return reader


def labels(page: str) -> dict[str, str]:
    fields = {
        at: text_in(words) for at, words in re.findall(r'<label[^>]* for="([^"]+)"[^>]*>(.*?)</label>', page, re.S)
    }
    boxes = re.findall(r'<label class="row"><input id="([^"]+)"[^>]*>(.*?)</label>', page, re.S)
    return fields | {at: text_in(words) for at, words in boxes}


def text_in(words: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", words))).strip()


def alert(answer: Any) -> str:
    found = re.search(r"<(div|p)[^>]*data-alert>(.*?)</\1>", answer.content.decode(), re.S)
    assert found is not None
    return found[2]


@pytest.mark.needs
def test_every_field_that_is_named_stands_on_its_page_under_that_name(boss_of_all: Reader) -> None:
    for path, acts in PAGES.items():
        page = boss_of_all.get(path).content.decode()
        visible = labels(page)
        for act in acts:
            for name, (at, label) in fields_in(act).items():
                if name not in ("confirm", "week"):  # checked only when needed; seven fields
                    assert visible[at].startswith(label), (act, name, visible.get(at))
    forms = FIELDS.keys() | {form for each in features.installed.values() for form in each.form_fields}
    assert {act for acts in PAGES.values() for act in acts} == forms - {"QueueOpenings", "try", "restore"}


@pytest.mark.needs
def test_what_is_refused_leads_to_its_field_by_the_name_that_it_has_there(boss_of_all: Reader) -> None:
    answer = boss_of_all.post(
        f"{QUEUE}/proofs", above="100", risk="", minutes="-5", type_amount="on", justification=WHY
    )
    note = alert(answer)
    assert answer.status_code == 422 and "(min)</a>: " in note and "does not fit" not in note
    assert '<a href="#p-minutes">Re-authenticate within (min)</a>' in note
    answer = boss_of_all.post(f"{QUEUE}/changes", title="T", role="nope", currency="USD", justification="")
    assert '<a href="#c-why">Why</a>' in alert(answer)
    stray = boss_of_all.post(f"{QUEUE}/changes", title="T", role="nope", currency="USD", justification=WHY, more="x")
    assert stray.status_code == 422 and "1 field that it" in alert(stray) and "#" not in alert(stray)


PAGE, DE_PAGE = "/queues/of/finance_po", "/queues/calendars/of/DE"


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
    return Forms(reader.get(page)).sent[act] | {"justification": WHY}


@pytest.mark.every(3)
@pytest.mark.parametrize("whose", ["", "vera"])
@pytest.mark.parametrize("act", ["limits", "lifts"])
def test_an_unseen_limit_is_neither_replaced_nor_lifted(anna: Reader, bert: Reader, act: str, whose: str) -> None:
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
    assert answer.status_code == 409 and "was changed by user:anna meanwhile" in text_of(answer)
    assert f"The limit of {whose or 'approver_finance'}" in text_of(answer) and held() == [500]
    entry = Forms(answer).sent[at]
    assert entry["seen"] != stale["seen"] and {**entry, "seen": ""} == {**stale, "seen": ""}, "the words are kept"
    set_by_anna("nils", "9")  # another person's setting is no obstacle
    assert bert.post(at, **entry).status_code == 302 and held() == ([700] if act == "limits" else [])
    stale = form(bert, PAGE, limits) | {"person": whose, "most": "900"}
    if act == "limits":
        lifts = f"{PAGE}/lifts"
        assert anna.post(lifts, **form(anna, PAGE, lifts) | {"person": whose}).status_code == 302
        answer = bert.post(limits, **stale)
        assert answer.status_code == 409 and "by user:anna" in text_of(answer) and held() == []
        stale = Forms(answer).sent[limits]
    assert bert.post(limits, **stale).status_code == 302 and held() == [900]


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


@pytest.mark.needs("accounts")
def test_a_role_that_was_given_meanwhile_is_not_taken_back_unseen(anna: Reader, bert: Reader) -> None:
    vera = User.objects.create_user("vera")
    page, at = f"/people/{vera.pk}", f"/people/{vera.pk}/roles"
    stale = Forms(bert.get(page)).sent[at]["seen"]
    assert anna.client.post(at, {"roles": ["auditor"], "seen": stale, "justification": WHY}).status_code == 302
    answer = bert.client.post(at, {"roles": ["operator"], "seen": stale, "justification": WHY})
    assert answer.status_code == 409 and "The set of roles of vera was changed meanwhile" in text_of(answer)
    assert [group.name for group in vera.groups.all()] == ["auditor"]
    page_now = answer.content.decode()
    assert re.search(r'value="operator"\s+checked', page_now) and not re.search(r'value="auditor"\s+checked', page_now)
    assert f'value="{WHY}"' in page_now and Forms(answer).sent[at]["seen"] != stale, "as it was sent, of how it is now"
    seen = Forms(bert.get(page)).sent[at]["seen"]
    assert bert.client.post(at, {"roles": ["operator"], "seen": seen, "justification": WHY}).status_code == 302
    with pytest.raises(Moved):
        rights.set_roles(vera.pk, [], False, seen=seen, by=of(anna), justification=WHY)


def rules() -> list[str]:
    found = User.objects.filter(is_superuser=True, is_active=True)
    return sorted(found.values_list("username", flat=True))


@pytest.mark.needs("accounts")
def test_the_last_administrator_stays_one(anna: Reader) -> None:
    assert anna.user is not None
    at = f"/people/{anna.user.pk}/roles"
    answer = anna.client.post(at, {"roles": ["operator"], "justification": WHY})
    assert answer.status_code == 409 and "anna is the only administrator" in text_of(answer)
    assert rules() == ["anna"] and not anna.user.groups.exists() and not ActRecord.objects.exists()
    assert anna.client.post(at, {"roles": ["operator"], "is_admin": "yes", "justification": WHY}).status_code == 302


@pytest.mark.needs("accounts")
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
