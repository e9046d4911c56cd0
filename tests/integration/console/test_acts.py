"""Steering a run from its page: actions are recorded, refusals keep what was typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from ledger.models import Event, Head, OverrideRecord
from ledger.web.roles import PROVED_BY
from runs.engine.budget import Budget
from runs.models import Run, Wait
from runs.services import lifecycle
from runs.services.budgets import raising
from tests.cases import each_case
from tests.integration.api.test_waiting import run
from tests.integration.console.conftest import SHOP, Reader, filled_in, start, text_of
from tests.integration.console.stage import settled, working
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, dump, fresh, kinds
from tests.integration.runs.test_injecting import WHY, asks, deal
from tests.world import OLGA, only_for_now

__all__ = ["run"]


pytestmark = pytest.mark.django_db


def records(run: Run) -> list[tuple[str, str, str]]:
    rows = OverrideRecord.objects.filter(run_id=run.id).order_by("id")
    return [(row.action, row.by, row.justification) for row in rows]


def test_a_pause_is_done_recorded_and_told(operator: Reader) -> None:
    run = start()
    answer = operator.client.post(f"/runs/{run.id}/pauses", {"justification": "Month end."}, follow=True)
    page = text_of(answer)
    assert "Pause requested." in page and "Paused by user:operator" in page
    assert records(run) == [("pause", "user:operator", "Month end.")]
    assert "“Month end.”" in operator.read(f"/runs/{run.id}", tab="decisions")


def test_without_a_reason_nothing_is_done(operator: Reader) -> None:
    run = start()
    answer = operator.post(f"/runs/{run.id}/cancellations", justification="  \r\n ")
    assert answer.status_code == 422 and "needs a reason" in text_of(answer)
    assert records(run) == [] and Run.objects.get(pk=run.pk).state == "pending"


def test_what_the_state_forbids_is_refused_and_the_text_is_kept(operator: Reader) -> None:
    run = start()
    operator.post(f"/runs/{run.id}/cancellations", justification="Not wanted.")
    answer = operator.post(f"/runs/{run.id}/pauses", justification="A long and careful <b>reason</b>.")
    assert answer.status_code == 409
    assert "A long and careful <b>reason</b>." in text_of(answer) and b"<b>reason</b>" not in answer.content
    assert [action for action, _, _ in records(run)] == ["cancel"]


def test_a_page_offers_what_its_state_allows_and_only_to_operators(operator: Reader, finance: Reader) -> None:
    run = start()
    available = lambda who: re.findall(r'id="act-(\w+)"', who.get(f"/runs/{run.id}").content.decode())  # noqa: E731
    assert available(operator) == ["pause", "cancel"] and available(finance) == []
    operator.post(f"/runs/{run.id}/pauses", justification="why")
    assert available(operator) == ["resume", "cancel"]
    operator.post(f"/runs/{run.id}/cancellations", justification="why")
    assert available(operator) == []


@each_case("path", ["/runs/{}", "/runs/{}/verification", "/inbox/{}"])
def test_an_unknown_id_is_not_found(operator: Reader, path: str) -> None:
    assert operator.get(path.format("00000000-0000-0000-0000-000000000000")).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_failed_run_shows_its_traceback_and_can_be_retried(operator: Reader) -> None:
    run = start(ending="bug", item="<img src=x onerror=alert(1)>")
    with working():
        settled(run, "failed")
        answer = operator.get(f"/runs/{run.id}")
        assert b"<img" not in answer.content and "RuntimeError: <img src=x onerror=alert(1)>" in text_of(answer)
        assert "Traceback" in text_of(answer) and "in think" in text_of(answer)
        operator.post(f"/runs/{run.id}/retries", justification="Fixed upstream.")
        settled(run, "failed")
    assert records(run) == [("retry", "user:operator", "Fixed upstream.")]


@pytest.mark.django_db(transaction=True)
class TestSettling:
    @pytest.fixture
    def run(self) -> Run:
        run = start(ending="unknown")
        with working():
            return settled(run, "waiting_human")

    def test_everything_needed_is_on_the_page(self, operator: Reader, run: Run) -> None:
        page = operator.read(f"/runs/{run.id}")
        for words in (
            "Send a letter: did it happen?",
            "chairs",
            "the line went dead",
            "stopped; this attempt can't be sent any more",
            "Result fields: po",
        ):
            assert words in page
        assert "Send a letter" in operator.read("/reconcile") and "1 waiting for an operator" in operator.read("/")

    def test_others_read_along(self, finance: Reader, run: Run) -> None:
        page = finance.read(f"/runs/{run.id}")
        assert "An operator must settle this." in page and "Settle</button>" not in page

    @each_case(
        ("receipt", "status", "words"),
        [
            ("{broken", 422, "(line 1, column 2); correct the JSON, or write plain text"),
            ("[1,", 422, "(line 1, column 4); correct the JSON"),
            ('{"wrong": 1}', 422, "po"),
            ("po\x00-1", 422, "contains a NUL character; remove it"),
            ('{"po": "L\\u0000"}', 422, "po: contains a NUL character; remove it"),
            ('{"po": 9007199254740993}', 422, "po: is an integer outside"),
            ('"' + "x" * 2_000_000 + '"', 413, "holds 2000002 bytes; at most 1048576 in the whole form"),
        ],
    )
    def test_a_receipt_that_the_api_would_refuse_is_refused_at_its_field(
        self, operator: Reader, run: Run, receipt: str, status: int, words: str
    ) -> None:
        form = {"verdict": "happened", "receipt": receipt, "justification": "Seen."}
        answer = operator.client.post(f"/runs/{run.id}/reconciliations", form)
        page = answer.content.decode()
        assert answer.status_code == status and words in field_error(page, "receipt") and records(run) == []
        assert ">Seen.</textarea>" in page and re.search(r'value="happened"[^>]*checked', page)

    @each_case("odd", [("wait_id", "cut-off"), ("sender_is_gone", "perhaps"), ("attempt", "2")])
    def test_a_field_that_says_nothing_is_not_passed_over(
        self, operator: Reader, run: Run, odd: tuple[str, str]
    ) -> None:
        form = {"verdict": "fail", "justification": "It is lost."} | dict([odd])
        answer = operator.post(f"/runs/{run.id}/reconciliations", **form)
        assert answer.status_code == 422 and f"{odd[0]}: " in text_of(answer) and records(run) == []

    def test_a_call_that_never_was_is_not_called_settled(self, operator: Reader, run: Run) -> None:
        form = {"verdict": "fail", "justification": "It is lost."}
        never = operator.post(f"/runs/{run.id}/reconciliations", **form, wait_id=str(uuid4()))
        assert never.status_code == 404 and "No unknown outcome of this run" in text_of(never)
        assert "It is lost." in never.content.decode() and records(run) == []
        wait = Wait.objects.get(run=run, kind="reconcile")
        answers = [operator.post(f"/runs/{run.id}/reconciliations", **form, wait_id=str(wait.pk)) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [302, 409]
        assert "That call has already been settled." in text_of(answers[1]) and len(records(run)) == 1

    def test_no_verdict_is_no_settlement(self, operator: Reader, run: Run) -> None:
        answer = operator.post(f"/runs/{run.id}/reconciliations", justification="Seen.")
        assert answer.status_code == 422 and "Choose an outcome." in text_of(answer) and records(run) == []

    def test_a_verdict_settles_it_on_the_record(self, operator: Reader, run: Run) -> None:
        operator.post(
            f"/runs/{run.id}/reconciliations",
            verdict="happened",
            receipt='{"po": "L-1"}',
            justification="Seen in the post book.",
        )
        assert records(run) == [("reconcile", "user:operator", "Seen in the post book.")]
        page = operator.read(f"/runs/{run.id}")
        assert "settled by user:operator: it happened" in page and "sent once · settled by user:operator" in page
        assert "Seen in the post book." in operator.read("/audit")


def test_signing_out_needs_a_post(operator: Reader) -> None:
    assert operator.get("/logout").status_code == 405
    assert operator.client.post("/logout").status_code == 302
    assert operator.get("/").status_code == 302


def test_signing_in_by_password(reader: object, operator: Reader) -> None:
    assert operator.user is not None
    operator.user.set_password("correct horse")
    operator.user.save()
    client = Client()
    answer = client.post("/login", {"username": "operator", "password": "wrong"})
    assert answer.status_code == 400 and 'value="operator"' in answer.content.decode()
    answer = client.post(
        "/login", {"username": "operator", "password": "correct horse", "next": "https://elsewhere.example/"}
    )
    assert answer.status_code == 302 and answer["Location"] == "/"


class TestDemo:
    """One-click sign-in exists only in the demo, and only for people with exactly one role."""

    @pytest.fixture
    def is_demo(self, settings: pytest.Item) -> None:
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"demo": True})  # type: ignore[attr-defined]

    def test_it_signs_in_with_one_click(self, operator: Reader, is_demo: None) -> None:
        assert b"no password needed" in Client().get("/login").content
        client = Client()
        assert client.post("/login/demo", {"username": "operator"})["Location"] == "/"
        assert client.get("/fleet").status_code == 200
        assert PROVED_BY not in client.session, "a click shows nothing of anybody"

    def test_outside_the_demo_it_does_nothing(self, operator: Reader) -> None:
        assert b"no password needed" not in Client().get("/login").content
        client = Client()
        assert client.post("/login/demo", {"username": "operator"})["Location"] == "/login"
        assert client.get("/").status_code == 302

    def test_it_never_signs_in_an_administrator(self, operator: Reader, is_demo: None) -> None:
        assert operator.user is not None
        operator.user.is_superuser = True
        operator.user.save()
        assert Client().post("/login/demo", {"username": "operator"})["Location"] == "/login"

    def test_it_signs_in_nobody_but_the_cast(self, reader: Callable[..., Reader], is_demo: None) -> None:
        """Real users of a demo are not signed in, whatever their role, nor a namesake with another role."""
        for roles, name in [
            (["operator"], "olga"),
            (["approver_finance"], "operator"),
            (["auditor", "operator"], "auditor"),
            (["legal"], "legal"),
        ]:
            reader(*roles, name=name)
            client = Client()
            assert client.post("/login/demo", {"username": name})["Location"] == "/login"
            assert client.get("/").status_code == 302
        assert b"no password needed" not in Client().get("/login").content

    def test_it_needs_the_forms_own_token(self, operator: Reader, is_demo: None) -> None:
        assert Client(enforce_csrf_checks=True).post("/login/demo", {"username": "operator"}).status_code == 403


def field_error(page: str, name: str) -> str:
    assert re.search(rf'aria-invalid="true"\s+aria-describedby="{name}_error"', page), f"{name} is not marked"
    found = re.search(rf'id="{name}_error">(.*?)</span>', page, re.S)
    assert found is not None
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found[1]))).strip()


@pytest.mark.needs("bulk")
def test_who_has_to_sign_in_first_comes_back_to_the_form_that_they_sent(reader: Callable[..., Reader]) -> None:
    nobody = reader(None).client
    for referer, next_ in (
        ("http://testserver/runs?state=failed", "/runs%3Fstate%3Dfailed"),
        ("https://elsewhere.example/x", "/"),
        ("http://testserver.elsewhere.example/x", "/"),
        ("no address", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
        ("http://[", "/"),
        ("http://testserver", "/"),
        ("http://testserver/bulk", "/bulk"),
        ("http://testserver/queues/of/finance_po/limits", "/queues/of/finance_po"),
        ("http://testserver/nowhere", "/"),
        ("http://testserver/queues/of/finance_po", "/queues/of/finance_po"),
    ):
        answer = nobody.post("/bulk", {"justification": "why"}, headers={"Referer": referer})
        assert answer.status_code == 302 and answer["Location"] == f"/login?next={next_}", referer


FORM = {"patch": '{"terms": {"price": 12}, "name": "<b>tin</b>"}', "justification": ""}


@pytest.fixture
def browser(reader: Callable[..., Reader]) -> Client:
    return reader("operator").client


def hidden(page: str) -> dict[str, str]:
    return {name: re.search(f'name="{name}" value="([^"]*)"', page)[1] for name in ("seq", "head")}  # type: ignore[index]


@pytest.mark.django_db(transaction=True)
def test_a_look_shows_what_would_change_and_the_act_is_offered_after_it(browser: Client, run: Run) -> None:
    assert f"/runs/{run.id}/context" in browser.get(f"/runs/{run.id}").content.decode()
    page = browser.get(f"/runs/{run.id}/context").content.decode()
    assert "terms.price" in page and "Resume with it" not in page and "signal go at 0.1/1" in page
    before = dump()
    seen = browser.post(f"/runs/{run.id}/context/looks", FORM).content.decode()
    assert "Changes" in seen and "Resume run" in seen and dump() == before
    assert "<b>tin</b>" not in seen and "&lt;b&gt;tin&lt;/b&gt;" in seen
    done = browser.post(f"/runs/{run.id}/context/resumptions", FORM | hidden(seen) | {"justification": WHY})
    assert done.status_code == 302 and kinds(run)[-2:] == ["ContextInjected", "RunResumed"]
    assert fresh(run).state == "waiting_event"
    page = browser.get(f"/runs/{run.id}").content.decode()
    assert "context changed" in page
    assert "applies after call 1" in browser.get(f"/runs/{run.id}?tab=journal").content.decode()


@pytest.mark.django_db(transaction=True)
@each_case(
    ("more", "words"),
    [
        ({"patch": "{"}, "not JSON"),
        ({"patch": '{"terms": {"price": 0}}'}, "terms.price"),
        ({"patch": ""}, "Enter state changes or a message"),
        ({"patch": "[1]"}, "patch"),
        ({"stray": "x"}, "1 field that it"),
    ],
)
def test_what_is_refused_keeps_what_was_typed(browser: Client, run: Run, more: dict[str, str], words: str) -> None:
    before = dump()
    answer = browser.post(f"/runs/{run.id}/context/looks", FORM | more)
    text = answer.content.decode()
    assert answer.status_code == 422 and words in text and dump() == before and "data-refused" in text


@pytest.mark.django_db(transaction=True)
def test_whom_it_can_not_be_handed_to_is_said(browser: Client, stage: Stage) -> None:  # noqa: F811
    with only_for_now():
        run = stage.start(deal(asks))
        page = browser.get(f"/runs/{run.id}/context")
        assert page.status_code == 200 and "Only a run that is paused" in page.content.decode()


def stopped_run(**budget: Any) -> Run:
    model_validate = Budget.model_validate(budget or {"tool_calls": 0})
    run = lifecycle.start("buyer", {"item": "chairs", "ending": "unknown"}, by=SHOP, budget=model_validate)
    with working():
        return settled(run, "paused")


def overdue_run() -> Run:
    run = lifecycle.start("buyer", {"item": "chairs"}, by=SHOP, budget=Budget(wall_seconds=3600))
    began = run.created_at - timedelta(hours=2)
    Run.objects.filter(pk=run.pk).update(created_at=began, time_up_at=began + timedelta(hours=1))
    raising.time_is_up(run.pk)
    return Run.objects.get(pk=run.pk)


@pytest.mark.django_db(transaction=True)
def test_a_run_at_its_cap_says_which_who_may_raise_it_and_what_happens_then(operator: Reader) -> None:
    run = stopped_run()
    page = operator.read(f"/runs/{run.id}")
    for value in (
        "needs budget",
        "tool calls: needs 1, 0 of 0 left",
        "waiting for an operator to raise it",
        "Tool calls cap 0 used 0 reserved 0 left 0 needed next 1 enough 1",
        "can be raised by Operator",
        "the run is cancelled",
        "its effects stay",
    ):
        assert value in page, value
    html = operator.get(f"/runs/{run.id}").content.decode()
    assert re.findall(r'id="act-(\w+)"', html) == ["pause", "cancel"], "resuming would not help"
    assert filled_in(html)["budget.tool_calls"] == "2" and filled_in(html)["budget.usd"] == ""


@pytest.mark.django_db(transaction=True)
def test_someone_who_may_raises_it_and_the_run_goes_on(operator: Reader) -> None:
    run = stopped_run()
    form = filled_in(operator.get(f"/runs/{run.id}").content.decode())
    answer = operator.client.post(f"/runs/{run.id}/budgets", form | {"justification": WHY}, follow=True)
    page = text_of(answer)
    assert "Budget saved." in page and "0 of 2" in page and "2 left" in page
    assert Head.objects.get(pk=run.pk).cap_tool_calls == 2 and Run.objects.get(pk=run.pk).state == "running"
    record = OverrideRecord.objects.get(run_id=run.pk)
    assert (record.action, record.by, record.justification) == ("budget", "user:operator", WHY)
    assert f"“{WHY}”" in operator.read(f"/runs/{run.id}", tab="decisions")
    assert "budget" in operator.read("/audit", action="budget")
    twice = operator.post(f"/runs/{run.id}/budgets", justification=WHY)
    assert twice.status_code == 422 and "name a cap" in text_of(twice)


@each_case(
    ("typed", "field", "says"),
    [
        ({"budget.usd": "-1"}, "budget.usd", "is less than 0"),
        ({"budget.usd": "<b>much</b>"}, "budget.usd", "not a number"),
        ({"budget.model_calls": "9" * 5000}, "budget.model_calls", "not a whole number"),
        ({"budget.steps": "1.5"}, "budget.steps", "not a whole number"),
        ({"budget.wall_seconds": "soon"}, "budget.wall_seconds", "a number of hours"),
        ({"budget.wall_seconds": "1e999999999"}, "budget.wall_seconds", "a number of hours"),
    ],
)
def test_a_fault_is_said_at_its_field_and_all_typed_is_kept(
    operator: Reader, typed: dict[str, str], field: str, says: str
) -> None:
    run = start()
    answer = operator.post(f"/runs/{run.id}/budgets", **typed, justification=WHY)
    html = answer.content.decode()
    assert answer.status_code == 422 and WHY in html and "<b>much" not in html
    assert says in re.findall(rf'id="f-{field.replace(".", "-")}_error">\s*(.*?)</span>', html, re.DOTALL)[0]
    assert filled_in(html)[field] == next(iter(typed.values())).replace("<", "&lt;").replace(">", "&gt;") or (
        "much" in filled_in(html)[field]
    )
    assert not OverrideRecord.objects.exists() and Event.objects.filter(run_id=run.pk).count() == 1


def test_a_form_from_before_somebody_raised_it_shows_both_and_undoes_nothing(operator: Reader) -> None:
    run = start()
    opened = filled_in(operator.get(f"/runs/{run.id}").content.decode())
    raising.set_budget(run.pk, Budget(model_calls=100), by=OLGA, justification="First.")
    mine = opened | {"budget.model_calls": "9", "justification": "A careful reason."}
    answer = operator.client.post(f"/runs/{run.id}/budgets", mine)
    html, page = answer.content.decode(), text_of(answer)
    assert answer.status_code == 409 and "was no cap, is 100 now" in page and "0 of 100" in page
    assert filled_in(html)["budget.model_calls"] == "9" and "A careful reason." in html
    assert "Model calls: was" in page and "budget.model" not in page, "no machine words"
    assert Head.objects.get(pk=run.pk).cap_model_calls == 100 and OverrideRecord.objects.count() == 1
    again = operator.client.post(f"/runs/{run.id}/budgets", filled_in(html) | {"justification": WHY})
    assert again.status_code == 302 and Head.objects.get(pk=run.pk).cap_model_calls == 9


def test_others_get_no_form(operator: Reader, finance: Reader, reader: Callable[..., Reader], settings: Any) -> None:
    run = overdue_run()
    assert reader("integrator").get(f"/runs/{run.id}").status_code == 404, "whose it isn't, for them there is none"
    for somebody in (finance, reader("auditor")):
        assert "Your roles can't raise it." in somebody.read(f"/runs/{run.id}")
        assert "budget-form" not in somebody.get(f"/runs/{run.id}").content.decode()
        answer = somebody.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "9"}, justification=WHY)
        assert answer.status_code == 403
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"budget_queue": "finance_po"})
    assert "can be raised by Operator, Finance approver" in operator.read(f"/runs/{run.id}")
    assert "Raise budget" in finance.read(f"/runs/{run.id}")
    answer = finance.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "9"}, justification=WHY)
    assert answer.status_code == 302 and OverrideRecord.objects.get().role == "approver_finance"


def opened(who: Reader) -> tuple[str, dict[str, str]]:
    page = who.client.get("/runs/new", {"agent": "buyer", "sample": "none"}, follow=True).content.decode()
    token = re.findall(r'name="token" value="([^"]+)"', page)[0]
    return page, filled_in(page) | {"agent": "buyer@1.0.0", "token": token, "item": "chairs"}


def test_a_run_is_started_with_the_budget_of_its_form(operator: Reader) -> None:
    page, form = opened(operator)
    assert "<details" in page and form["budget.usd"] == ""
    answer = operator.client.post("/runs/new", form | {"budget.tool_calls": "3", "budget.wall_seconds": "1.5"})
    assert answer.status_code == 302
    run = Run.objects.get()
    assert Head.objects.get(pk=run.pk).cap_tool_calls == 3
    assert run.time_up_at is not None
    assert abs(run.time_up_at - run.created_at - timedelta(minutes=90)) < timedelta(seconds=5)
    again = operator.client.post("/runs/new", form | {"budget.tool_calls": "3", "budget.wall_seconds": "1.5"})
    assert again.status_code == 302 and Run.objects.count() == 1
    other = operator.client.post("/runs/new", form | {"budget.tool_calls": "4"})
    assert other.status_code == 409 and Run.objects.count() == 1
