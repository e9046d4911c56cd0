"""Two operators settle an unknown outcome on the run's page: what each of them sees, does, and is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.models import Run, Wait
from runs.services import lifecycle
from tests.api.test_settling import run
from tests.approvals.setup import WHY, somebody
from tests.console.conftest import text_of
from tests.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)
from tests.runs.stage import Stage, dump, kinds, output, problems
from tests.runs.test_asking_upstream import FOUND, answers, hooked
from tests.runs.test_lookups import lost
from tests.runs.test_lookups import says as settle
from tests.runs.test_settling import refused_late
from tests.world import Outside, Toolbox, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["run"]  # fixtures
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


def page(client: Client, run: Run) -> str:
    answer = client.get(f"/runs/{run.id}")
    assert answer.status_code == 200
    return answer.content.decode()


def agreeing(html: str) -> dict[str, str]:
    """What the form of whoever agrees sends, but for the reason."""
    (form,) = re.findall(r'<form[^>]*id="agree-form".*?</form>', html, re.S)
    return dict(re.findall(r'type="hidden" name="(wait_id|agrees_with|verdict)" value="([^"]*)"', form))


def test_the_first_says_it_and_the_second_agrees(run: Run, stage: Stage, ann: Client, ben: Client) -> None:  # noqa: F811
    html = page(ann, run)
    assert "Two people settle this." in html and "Say so" in html and "Settle it" not in html
    assert "must not be sent twice, so two people settle it" in text_of(ann.get(f"/runs/{run.id}"))
    assert "A second operator" not in text_of(ann.get("/reconcile"))
    told = text_of(says(ann, run))
    assert "A second operator has to say the same before it counts" in told and kinds(run)[-1] == "OutcomeProposed"
    assert "You said this" in told and 'id="agree-form"' not in page(ann, run)
    listed = text_of(ben.get("/reconcile"))
    assert "user:ann says: it happened. A second operator has to say the same." in listed
    html = page(ben, run)
    assert "user:ann says: it happened" in re.sub(r"\s+", " ", html) and "In the outbox." in html
    assert "<b>seen</b>" not in html and "&lt;b&gt;seen&lt;/b&gt;" in html
    form = agreeing(html)
    assert form["agrees_with"] == "0" and form["verdict"] == "happened"
    done = ben.post(f"/runs/{run.id}/reconciliations", form | {"justification": "I see it too."}, follow=True)
    assert "Settled. It is on the record." in text_of(done)
    assert stage.drive() == "completed" and output(run) == "<b>seen</b>" and problems(run) == []
    for tab in ("timeline", "decisions", "journal"):
        assert ben.get(f"/runs/{run.id}?tab={tab}").status_code == 200
    assert "a second person has to say the same" in ben.get(f"/runs/{run.id}?tab=journal").content.decode()


def test_whoever_agrees_with_what_stands_no_more_is_told_and_keeps_their_text(
    run: Run, ann: Client, ben: Client
) -> None:
    says(ann, run)
    form = agreeing(page(ben, run)) | {"justification": "I see it too, in the archive."}
    says(ann, run, receipt='{"ref": "another"}')
    before = dump()
    refused = ben.post(f"/runs/{run.id}/reconciliations", form)
    html = refused.content.decode()
    assert refused.status_code == 409 and "does not stand there any more" in html and dump() == before
    assert "I see it too, in the archive." in html and 'id="agree-form"' in html
    assert agreeing(html)["agrees_with"] == "1", "the form is about what is said now"


def test_what_was_told_of_the_call_since_takes_the_agreement_away(
    run: Run,
    stage: Stage,  # noqa: F811
    ann: Client,
    ben: Client,
) -> None:
    says(ann, run)
    refused_late(stage, run)
    html = page(ben, run)
    assert 'id="said-news"' in html and 'id="agree-form"' not in html and 'id="reconcile-form"' in html


def test_it_is_taken_back_by_whoever_said_it(run: Run, ann: Client, ben: Client) -> None:
    says(ann, run)
    wait = str(Wait.objects.get(run=run, kind="reconcile").pk)
    at = f"/runs/{run.id}/reconciliations/withdrawals"
    assert 'id="take-back-form"' not in page(ben, run)
    assert ben.post(at, {"wait_id": wait, "justification": WHY}).status_code == 403
    empty = ann.post(at, {"wait_id": wait, "justification": ""})
    assert empty.status_code == 422 and "OutcomeWithdrawn" not in kinds(run)
    assert 'id="take-back" open' in empty.content.decode() or "data-refused" in empty.content.decode()
    done = ann.post(at, {"wait_id": wait, "justification": WHY}, follow=True)
    assert "Taken back. It is on the record." in text_of(done) and "says: it happened" not in page(ben, run)


def test_whoever_only_reads_sees_who_said_what_and_no_form(run: Run, ann: Client) -> None:
    says(ann, run)
    somebody("audrey", "auditor")
    somebody("eve", "approver_finance")
    html = page(signed_in("audrey"), run)
    assert "In the outbox." in html and 'id="agree-form"' not in html and 'id="reconcile-form"' not in html
    html = page(signed_in("eve"), run)
    assert "In the outbox." in html and "seen&lt;" not in html and "Not shown to you" in html


def test_to_fail_the_run_needs_nobody_else(run: Run, ann: Client, ben: Client) -> None:
    says(ann, run)
    assert "Settled." in text_of(says(ben, run, verdict="fail", receipt=""))
    assert str(Run.objects.get(pk=run.pk).state) == "failed"


def test_the_other_side_is_asked_on_the_page(stage: Stage, tools: Toolbox, outside: Outside) -> None:  # noqa: F811
    with only_for_now():
        found = hooked(stage, tools, outside)
        somebody("ann", "operator")
        client = signed_in("ann")
        html = page(client, found)
        assert 'id="ask-form"' in html and "Ask what became of it" in html
        wait = str(Wait.objects.get(run=found, kind="reconcile").pk)
        at = f"/runs/{found.id}/reconciliations/askings"
        assert client.post(at, {"wait_id": wait, "justification": ""}).status_code == 422
        done = client.post(at, {"wait_id": wait, "justification": WHY}, follow=True)
        assert "It is asked as soon as a worker has the run" in text_of(done)
        answers(outside, FOUND)
        assert stage.drive() == "parked"
        told = text_of(client.get(f"/runs/{found.id}"))
        assert "The other side says: it happened" in told and "as the mailbox has it" in told
        assert "It settles nothing by itself" in told and "Ask again" in told
        somebody("eve", "approver_finance")
        told = text_of(signed_in("eve").get(f"/runs/{found.id}"))
        assert "it happened" in told and "as the mailbox has it" not in told
        journal = client.get(f"/runs/{found.id}?tab=journal").content.decode()
        assert "the other side says: it happened" in journal and "is to be asked once more" in journal


def test_the_page_leads_to_where_the_call_is_looked_up_and_to_others_like_it(
    stage: Stage,  # noqa: F811
    outside: Outside,  # noqa: F811
) -> None:
    with only_for_now():
        by = somebody("ann", "operator")
        first = lost(stage, outside, None, agent="poster")
        settle(first, by, "happened", "In the <b>outbox</b>.")
        while stage.drive() != "idle":
            pass
        second = lost(stage, outside, lambda a: f"https://post.example/?to={len(a.name)}", agent="poster-2")
        client = signed_in("ann")
        html = page(client, second)
        assert (
            'href="https://post.example/?to=3" rel="noopener noreferrer nofollow"' in html and "(post.example)" in html
        )
        third = lost(stage, outside, lambda a: "javascript:alert(1)", agent="poster")
        assert "javascript:" not in page(client, third)
        told = client.get(f"/runs/{third.id}/reconciliations/similar")
        assert "had happened" in text_of(told) and "In the <b>outbox</b>." in text_of(told).replace("&lt;", "<")
        assert "<b>outbox</b>" not in told.content.decode()
        somebody("eve", "approver_finance")
        assert "post.example" not in page(signed_in("eve"), second)


def test_the_page_of_others_is_of_the_call_that_is_open(stage: Stage, outside: Outside) -> None:  # noqa: F811
    with only_for_now():
        by = somebody("ann", "operator")
        found = lost(stage, outside, None, agent="poster")
        settle(found, by, "fail", "nobody knows")
        lifecycle.retry(found.id, by=by, justification=WHY)
        assert stage.drive() == "parked"
        first, second = Wait.objects.filter(run=found, kind="reconcile").order_by("n")
        client = signed_in("ann")
        assert f"reconciliations/similar?wait={second.pk}" in page(client, found)
        for wait in (str(first.pk), str(second.pk), "nonsense", ""):
            assert client.get(f"/runs/{found.id}/reconciliations/similar", {"wait": wait}).status_code == 200
