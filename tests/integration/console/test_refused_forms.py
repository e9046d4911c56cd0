"""A form that is refused comes back as it was sent, box by box, and no other form of its page with it: whoever corrects
one field and sends it again says what they meant to say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals.calendars.models import Absence
from approvals.outbox.models import Channel
from approvals.queue_models import Deputy
from tests.cases import each_case
from tests.integration.console.conftest import Reader

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


class Forms(HTMLParser):
    """What a browser sends of each form of a page where nobody touches it, by its action."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.sent: dict[str, dict[str, str]] = {}
        self._form: dict[str, str] = {}
        self._at, self._chosen = "", False
        self.feed(answer.content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        name = known.get("name", "")
        if tag == "form":
            self._form = self.sent.setdefault(known.get("action", ""), {})
        elif tag in ("select", "textarea"):
            self._at, self._form[name] = name, ""
        elif tag == "option":
            self._chosen = "selected" in known and "value" not in known
            if "selected" in known:
                self._form[self._at] = known.get("value", "")
        elif (
            tag == "input" and name != "csrfmiddlewaretoken" and (known.get("type") != "checkbox" or "checked" in known)
        ):
            self._form[name] = known.get("value", "on" if known.get("type") == "checkbox" else "")

    def handle_endtag(self, tag: str) -> None:
        self._at = "" if tag in ("select", "textarea") else self._at
        self._form = {} if tag == "form" else self._form

    def handle_data(self, data: str) -> None:
        if self._at and (self.lasttag == "textarea" or (self.lasttag == "option" and self._chosen)):
            self._form[self._at] += data.removeprefix("\n").strip()
            self._chosen = False


def refused_and_given_back(boss: Reader, page: str, act: str, typed: dict[str, str]) -> None:
    """Send it, which is refused; what then stands in its form is what was typed, and in the others what stood there."""
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


def test_a_refused_calendar_is_kept(boss: Reader) -> None:
    typed = CALENDAR | {"name": "DE", "mon": "always", "tue": "", "justification": WHY}
    refused_and_given_back(boss, "/queues/calendars", "/queues/calendars/new", typed)


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


def test_a_policy_that_was_tried_keeps_the_reason_for_it(boss: Reader) -> None:
    typed = RULE | {"name": "dear", "justification": WHY}
    assert Forms(boss.post("/policies/tries", **typed)).sent["/policies/new"] == typed
    refused_and_given_back(boss, "/policies", "/policies/new", typed | {"condition": "("})


@each_case(
    ("act", "typed"),
    [
        ("/queues/new", {"name": "Refunds", "title": "R", "role": "nope", "currency": "EUR", "needs_amount": "on"}),
        (
            "/queues/absences",
            {
                "person": "nobody at all",
                "deputy": "",
                "starts_at": "",
                "ends_at": "2031-01-01T09:00",
            },
        ),
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


def test_a_refused_end_of_a_time_keeps_its_reason(boss: Reader, reader: Callable[..., Reader]) -> None:
    ann = reader("approver_legal", name="ann")
    reader("operator", name="bob")
    until = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    times = {"starts_at": "", "ends_at": until, "justification": WHY}
    assert ann.post("/queues/deputies", deputy="bob", queue="", **times).status_code == 302
    assert ann.post("/queues/absences", deputy="", **times).status_code == 302
    for row, act in ((Deputy.objects.get(), "deputies/{}/revocations"), (Absence.objects.get(), "absences/{}/endings")):
        refused_and_given_back(ann, "/queues", f"/queues/{act.format(row.pk)}", {"justification": "x" * 5000})


def test_refused_wishes_about_notices_are_kept(boss: Reader) -> None:
    before = Forms(boss.get("/notifications")).sent["/notifications/settings"]
    boxes = {name: "on" for name in before if "." in name}
    for wished in ({"opened.browser": "on"}, boxes):
        typed = {**wished, "zone": "Mars", "digest": "daily", "quiet_from": "", "quiet_until": "", "digest_at": "09:00"}
        refused_and_given_back(boss, "/notifications", "/notifications/settings", typed)


def test_a_refused_form_of_a_channel_is_kept(boss: Reader) -> None:
    page = "/notifications/channels"
    made = {"name": "law", "queue": "legal", "form": "mailbox", "address": "law@example.org", "justification": WHY}
    refused_and_given_back(boss, page, f"{page}/new", made | {"address": "nowhere", "kind.opened": "on"})
    assert boss.post(f"{page}/new", **made, **{"kind.opened": "on"}).status_code == 302
    row = Channel.objects.get()
    other = {"address": "nowhere", "justification": WHY, "kind.due_soon": "on"}
    refused_and_given_back(boss, page, f"{page}/{row.pk}/changes", other)
    refused_and_given_back(boss, page, f"{page}/{row.pk}/ends", {"justification": "x" * 5000})
