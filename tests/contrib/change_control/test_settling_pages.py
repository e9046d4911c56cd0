"""Two people settle an unknown outcome on its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ledger.spans import span_id
from runs.models import Run
from tests.contrib.change_control.test_settling_api import run
from tests.integration.approvals.setup import somebody
from tests.integration.console.conftest import Reader, text_of
from tests.integration.console.test_messages import page
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.stage import Stage, dump, kinds, output, problems

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["run"]  # fixtures


@pytest.fixture
def auditor(reader: Callable[..., Reader]) -> Reader:
    return reader("auditor")


SAID = {"verdict": "happened", "receipt": '{"ref": "<b>seen</b>"}', "justification": "In the outbox."}


@pytest.fixture
def ann(run: Run) -> Client:
    return signed_in("ann")


@pytest.fixture
def ben(run: Run) -> Client:
    return signed_in("ben")


def signed_in(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username=name))
    return client


def says(client: Client, run: Run, **said: Any) -> Any:
    return client.post(f"/runs/{run.id}/reconciliations", SAID | said, follow=True)


def agreeing(html: str) -> dict[str, str]:
    """Return the hidden values of the second person's form."""
    (form,) = re.findall(r'<form[^>]*id="agree-form".*?</form>', html, re.S)
    return dict(re.findall(r'type="hidden" name="(wait_id|agrees_with|verdict)" value="([^"]*)"', form))


def test_a_run_and_its_effects_lead_to_their_spans(run: Run, ann: Client, settings: Any) -> None:
    row = ann.get(f"/api/v1/runs/{run.id}/ledger").json()["results"][0]
    template = "http://127.0.0.1:16686/trace/{trace_id}?uiFind={span_id}"
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"trace_url": template})
    html = page(ann, run)
    for span in (row["span_id"], span_id(str(run.id))):
        assert f'<a href="http://127.0.0.1:16686/trace/{run.trace_id}?uiFind={span}" rel="noreferrer">' in html
    assert str(run.id) in ann.get(re.findall(r'href="(/runs\?trace_id=[^"]+)"', html)[0]).content.decode()


def test_the_first_says_it_and_the_second_agrees(run: Run, stage: Stage, ann: Client, ben: Client) -> None:
    html = page(ann, run)
    assert "Two operators must agree." in html and "Propose</button>" in html and "Settle</button>" not in html
    assert "Two operators have to settle it" in text_of(ann.get(f"/runs/{run.id}"))
    assert "A second operator" not in text_of(ann.get("/reconcile"))
    text = text_of(says(ann, run))
    assert "A second operator must confirm it" in text and kinds(run)[-1] == "OutcomeProposed"
    assert 'id="agree-form"' not in page(ann, run)
    listed = text_of(ben.get("/reconcile"))
    assert "user:ann says: it happened. A second operator must confirm it." in listed
    html = page(ben, run)
    assert "user:ann says: it happened" in re.sub(r"\s+", " ", html) and "In the outbox." in html
    assert "<b>seen</b>" not in html and "&lt;b&gt;seen&lt;/b&gt;" in html
    form = agreeing(html)
    assert form["agrees_with"] == "0" and form["verdict"] == "happened"
    done = ben.post(f"/runs/{run.id}/reconciliations", form | {"justification": "I see it too."}, follow=True)
    assert "Outcome recorded." in text_of(done)
    assert stage.drive() == "completed" and output(run) == "<b>seen</b>" and problems(run) == []
    for tab in ("timeline", "decisions", "journal"):
        assert ben.get(f"/runs/{run.id}?tab={tab}").status_code == 200
    assert "a second person must confirm" in ben.get(f"/runs/{run.id}?tab=journal").content.decode()


def test_someone_who_agrees_with_what_stands_no_more_is_told_and_keeps_their_text(
    run: Run, ann: Client, ben: Client
) -> None:
    says(ann, run)
    form = agreeing(page(ben, run)) | {"justification": "I see it too, in the archive."}
    says(ann, run, receipt='{"ref": "another"}')
    before = dump()
    refused = ben.post(f"/runs/{run.id}/reconciliations", form)
    html = refused.content.decode()
    assert refused.status_code == 409 and "The proposal that you confirmed has changed" in html and dump() == before
    assert "I see it too, in the archive." in html and 'id="agree-form"' in html
    assert agreeing(html)["agrees_with"] == "1", "the form is about what is said now"


def test_someone_who_only_reads_sees_who_said_what_and_no_form(run: Run, ann: Client) -> None:
    says(ann, run)
    somebody("audrey", "auditor")
    somebody("eve", "approver_finance")
    html = page(signed_in("audrey"), run)
    assert "In the outbox." in html and 'id="agree-form"' not in html and 'id="reconcile-form"' not in html
    html = page(signed_in("eve"), run)
    assert "In the outbox." in html and "seen&lt;" not in html and "Not shown to you" in html
