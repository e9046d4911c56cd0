"""Steering a run from its page: what is done leaves a record, what isn't loses no word."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from uuid import uuid4

import pytest
from django.test import Client

from ledger.models import OverrideRecord
from ledger.web.roles import PROVED_BY
from runs.models import Run, Wait
from tests.cases import each_case
from tests.integration.console.conftest import Reader, start, text_of
from tests.integration.console.stage import settled, working

pytestmark = pytest.mark.django_db


def records(run: Run) -> list[tuple[str, str, str]]:
    return list(
        OverrideRecord.objects.filter(run_id=run.id).order_by("id").values_list("action", "by", "justification")
    )


def test_a_pause_is_done_recorded_and_told(operator: Reader) -> None:
    run = start()
    answer = operator.client.post(f"/runs/{run.id}/pauses", {"justification": "Month end."}, follow=True)
    page = text_of(answer)
    assert (
        "Pause requested. It is on the record." in page
        and "Paused by user:operator" in page
        and "No worker is held." in page
    )
    assert records(run) == [("pause", "user:operator", "Month end.")]
    assert "“Month end.”" in operator.read(f"/runs/{run.id}", tab="decisions")


def test_without_a_reason_nothing_is_done(operator: Reader) -> None:
    run = start()
    answer = operator.post(f"/runs/{run.id}/cancellations", justification="  \r\n ")
    assert answer.status_code == 422 and "needs a justification" in text_of(answer)
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
    offered = lambda who: re.findall(r'id="act-(\w+)"', who.get(f"/runs/{run.id}").content.decode())  # noqa: E731
    assert offered(operator) == ["pause", "cancel"] and offered(finance) == []
    operator.post(f"/runs/{run.id}/pauses", justification="why")
    assert offered(operator) == ["resume", "cancel"]
    operator.post(f"/runs/{run.id}/cancellations", justification="why")
    assert offered(operator) == []


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
    """An unknown outcome, settled from the run's page."""

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
            "is done: nothing of this attempt can still leave",
            "Result fields: po",
        ):
            assert words in page
        assert "Send a letter" in operator.read("/reconcile") and "1 waiting for an operator" in operator.read("/")

    def test_others_read_along(self, finance: Reader, run: Run) -> None:
        page = finance.read(f"/runs/{run.id}")
        assert "An operator settles this." in page and "Settle it" not in page

    def test_a_receipt_that_is_not_enough_is_said_at_the_form(self, operator: Reader, run: Run) -> None:
        answer = operator.post(
            f"/runs/{run.id}/reconciliations",
            verdict="happened",
            receipt='{"wrong": 1}',
            justification="Seen in the post book.",
        )
        page = answer.content.decode()
        assert answer.status_code == 422 and "receipt" in text_of(answer)
        assert (
            "Seen in the post book." in page
            and "{&quot;wrong&quot;: 1}" in page
            and re.search(r'value="happened"[^>]*checked', page)
        )

    @pytest.mark.parametrize("receipt", ["{broken", "[1,"])
    def test_a_receipt_that_should_be_json_must_be(self, operator: Reader, run: Run, receipt: str) -> None:
        answer = operator.post(
            f"/runs/{run.id}/reconciliations", verdict="happened", receipt=receipt, justification="Seen."
        )
        assert answer.status_code == 422 and "not valid JSON" in text_of(answer)

    @pytest.mark.parametrize(
        ("receipt", "status", "words"),
        [
            ("{broken", 422, "(line 1, column 2); correct the JSON, or write plain words"),
            ("po\x00-1", 422, "holds a NUL character; remove it"),
            ('{"po": "L\\u0000"}', 422, "po: holds a NUL character; remove it"),
            ('{"po": 9007199254740993}', 422, "po: is an integer beyond"),
            ('"' + "x" * 2_000_000 + '"', 413, "holds 2000002 bytes; at most 1048576 in the whole form"),
        ],
        ids=["broken", "NUL", "escaped NUL", "inexact", "2 MB"],
    )
    def test_a_receipt_that_the_api_would_refuse_is_refused_at_its_field(
        self, operator: Reader, run: Run, receipt: str, status: int, words: str
    ) -> None:
        form = {"verdict": "happened", "receipt": receipt, "justification": "Seen."}
        answer = operator.client.post(f"/runs/{run.id}/reconciliations", form)
        page = answer.content.decode()
        assert answer.status_code == status and words in field_error(page, "receipt") and records(run) == []
        assert ">Seen.</textarea>" in page and re.search(r'value="happened"[^>]*checked', page)

    @pytest.mark.parametrize(
        "odd", [("wait_id", "cut-off"), ("sender_is_gone", "perhaps"), ("attempt", "2")], ids=lambda odd: odd[0]
    )
    def test_a_field_that_says_nothing_is_not_passed_over(
        self, operator: Reader, run: Run, odd: tuple[str, str]
    ) -> None:
        form = {"verdict": "fail", "justification": "It is lost."} | dict([odd])
        answer = operator.post(f"/runs/{run.id}/reconciliations", **form)
        assert answer.status_code == 422 and f"{odd[0]}: " in text_of(answer) and records(run) == []

    def test_a_call_that_never_was_is_not_called_settled(self, operator: Reader, run: Run) -> None:
        form = {"verdict": "fail", "justification": "It is lost."}
        never = operator.post(f"/runs/{run.id}/reconciliations", **form, wait_id=str(uuid4()))
        assert never.status_code == 404 and "There is no unknown outcome" in text_of(never)
        assert "It is lost." in never.content.decode() and records(run) == []
        wait = Wait.objects.get(run=run, kind="reconcile")
        answers = [operator.post(f"/runs/{run.id}/reconciliations", **form, wait_id=str(wait.pk)) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [302, 409]
        assert "That call has been settled." in text_of(answers[1]) and len(records(run)) == 1

    def test_no_verdict_is_no_settlement(self, operator: Reader, run: Run) -> None:
        answer = operator.post(f"/runs/{run.id}/reconciliations", justification="Seen.")
        assert answer.status_code == 422 and "Choose what became of the call." in text_of(answer) and records(run) == []

    def test_a_verdict_settles_it_on_the_record(self, operator: Reader, run: Run) -> None:
        operator.post(
            f"/runs/{run.id}/reconciliations",
            verdict="happened",
            receipt='{"po": "L-1"}',
            justification="Seen in the post book.",
        )
        assert records(run) == [("reconcile", "user:operator", "Seen in the post book.")]
        assert "settled by user:operator: it happened" in operator.read(f"/runs/{run.id}")
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
    """One-click sign-in exists in the demo only, and only for people with one role and no more."""

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
        """A demo that is started beside real people gives none of them away, whatever their role, nor a namesake with
        another role."""
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
    """What stands at a field that is marked as wrong, as a page says it."""
    assert re.search(rf'aria-invalid="true"\s+aria-describedby="{name}_error"', page), f"{name} is not marked"
    found = re.search(rf'id="{name}_error">(.*?)</span>', page, re.S)
    assert found is not None
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found[1]))).strip()


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
