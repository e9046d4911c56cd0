"""Acting on many runs from the list: what fits is frozen and looked at, started by a person, done by a worker, and told
run by run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import Head, OverrideRecord
from runs.console.bulk.views import _Shown
from runs.models import Batch, Run
from runs.queries.bulk.progress import Progress
from runs.services import lifecycle
from runs.services.bulk import acts, working
from tests.console.conftest import OLGA, Reader, start, text_of
from tests.runs.stories import as_superuser

pytestmark = pytest.mark.django_db
WHY = "The supplier is down."


def test_all_that_fit_are_looked_at_started_and_told_one_by_one(operator: Reader) -> None:
    runs = [start(item=f"chair {n}") for n in range(3)]
    lifecycle.cancel(runs[0].pk, by=OLGA, justification="not this one")
    assert "Act on all that fit" in operator.read("/runs", agent="buyer")
    page = operator.read("/bulk/new", agent="buyer")
    assert "Act on 3 runs" in page and "buyer" in page
    answer = operator.post("/bulk/new", agent="buyer", action="pause", justification=WHY)
    batch = Batch.objects.get()
    assert answer.status_code == 302 and answer["Location"] == f"/bulk/{batch.pk}" and batch.state == "draft"
    page = operator.read(f"/bulk/{batch.pk}")
    assert "it may be done to 2 of 3 runs" in page and "1 would be refused" in page and WHY in page
    assert not working.work(1)
    start(item="came later")
    assert operator.post(f"/bulk/{batch.pk}/starts", justification="Looked at it.").status_code == 302
    assert "under way" in operator.read(f"/bulk/{batch.pk}") and "Stop…" in operator.read(f"/bulk/{batch.pk}")
    # no run's ring tells that the last one was done and it is over: the page looks by itself
    assert "data-every" in operator.get(f"/bulk/{batch.pk}").content.decode()
    assert not working.work(60)
    page = operator.read(f"/bulk/{batch.pk}")
    assert "2 done, 1 refused" in page and "can't be asked to pause" in page
    assert "Start…" not in page and "Stop…" not in page
    assert (
        Run.objects.filter(state="paused").count() == 2 and OverrideRecord.objects.filter(action="pause").count() == 2
    )
    refused = operator.read(f"/bulk/{batch.pk}", outcome="refused")
    assert str(runs[0].pk)[-4:] in refused and "Pause 3 runs" in operator.read("/bulk")


def test_nobody_is_offered_what_only_others_may_say(reader: Callable[..., Reader]) -> None:
    start()
    seen = {}
    for role in ("operator", "approver_finance", "integrator"):
        page = reader(role).read("/bulk/new", agent="buyer")
        seen[role] = [word for word in ("Of a priority", "Of a budget", "Of unknown outcomes") if word in page]
    assert seen == {
        "operator": ["Of a priority", "Of a budget", "Of unknown outcomes"],
        "approver_finance": ["Of a budget"],
        "integrator": [],
    }


def test_states_are_called_what_they_are_called_everywhere() -> None:
    of = Batch(action="pause", forecast={"states": {"waiting_human": 2, "pending": 1}})
    assert _Shown(Progress(of, 0, 0, 0)).states == [("waiting for a person", 2), ("pending", 1)]


def test_a_filter_is_told_in_words_whatever_a_row_says_of_it() -> None:
    of = Batch(action="pause", chosen={"filter": {"state": "waiting_human", "q": "acme", "agent": "buyer"}})
    told = [("state", "waiting for people"), ("search", "acme"), ("agent", "buyer")]
    assert _Shown(Progress(of, 0, 0, 0)).chosen == told
    of.chosen = {"filter": {"state": ["waiting_human"], "more": 1}}
    assert _Shown(Progress(of, 0, 0, 0)).chosen == [("state", "['waiting human']"), ("more", "1")]


def test_a_form_that_is_wrong_comes_back_as_it_was_filled_in(operator: Reader) -> None:
    start()
    for form, words in (
        ({}, "action"),
        ({"action": "pause"}, "justification"),
        ({"action": "explode", "justification": WHY}, "action"),
        ({"action": "priority", "priority": "many", "justification": WHY}, "priority"),
        ({"action": "priority", "justification": WHY}, "priority"),
        ({"action": "pause", "priority": "3", "justification": WHY}, "priority"),
    ):
        answer = operator.post("/bulk/new", agent="buyer", **form)
        assert answer.status_code == 422 and words in text_of(answer), form
        assert form.get("justification", "") in text_of(answer)
    assert not Batch.objects.exists()


def test_a_filter_that_nobody_can_read_acts_on_nothing(operator: Reader) -> None:
    start()
    assert "Nothing was looked for" in operator.read("/bulk/new", where="nonsense ((")
    answer = operator.post("/bulk/new", where="nonsense ((", action="pause", justification=WHY)
    assert answer.status_code == 400 and not Batch.objects.exists()


def test_hostile_text_is_inert(operator: Reader) -> None:
    start()
    operator.post("/bulk/new", agent="buyer", action="pause", justification="<img src=x onerror=alert(1)>")
    batch = Batch.objects.get()
    for path in ("/bulk", f"/bulk/{batch.pk}"):
        assert "<img src=x" not in operator.get(path).content.decode()


def test_an_approver_is_offered_what_they_may_and_sees_no_act_of_others(finance: Reader, operator: Reader) -> None:
    start()
    operator.post("/bulk/new", agent="buyer", action="pause", justification=WHY)
    batch = Batch.objects.get()
    page = finance.read("/bulk/new", agent="buyer")
    assert "Pause them" in page and "Retry them" not in page and "priority of them" not in page
    assert finance.get(f"/bulk/{batch.pk}").status_code == 404
    assert finance.post("/bulk/new", agent="buyer", action="retry", justification=WHY).status_code == 403


def test_an_auditor_reads_and_does_nothing(reader: type[Reader], operator: Reader) -> None:
    start()
    operator.post("/bulk/new", agent="buyer", action="pause", justification=WHY)
    auditor = reader("auditor")
    page = auditor.read(f"/bulk/{Batch.objects.get().pk}")
    assert "Start…" not in page and "Act on all that fit" not in auditor.read("/runs")


def test_budgets_are_raised_and_outcomes_settled_by_the_form(operator: Reader, finance: Reader) -> None:
    run = start()
    Head.objects.filter(pk=run.pk).update(cap_steps=5)
    page = operator.read("/bulk/new", agent="buyer")
    assert "Raise the budget of them" in page and "Settle the unknown outcome of them" in page
    assert "Settle the unknown outcome" not in finance.read("/bulk/new", agent="buyer")
    for form, words in (
        ({"action": "budget"}, "names no cap"),
        ({"action": "budget", "steps": "many"}, "steps"),
        ({"action": "budget", "usd": "-1"}, "usd"),
        ({"action": "reconcile"}, "verdict"),
        ({"action": "reconcile", "verdict": "happened", "receipt": "{"}, "receipt"),
        ({"action": "reconcile", "verdict": "perhaps"}, "verdict"),
    ):
        answer = operator.post("/bulk/new", agent="buyer", justification=WHY, **form)
        assert answer.status_code == 422 and words in text_of(answer), form
        assert 'value="many"' in answer.content.decode() or form.get("steps") != "many"
    assert not Batch.objects.exists()
    operator.post("/bulk/new", agent="buyer", action="budget", steps="12", usd="2.50", justification=WHY)
    batch = Batch.objects.get()
    assert batch.said == {"budget": {"steps": 12, "usd": "2.50"}} and batch.forecast["may"] == 1
    page = operator.read(f"/bulk/{batch.pk}")
    assert "Raise the budget of 1 run" in page and "Steps: 12" in page and "US dollars: 2.50" in page
    assert "{" not in page
    operator.post(f"/bulk/{batch.pk}/starts", justification="Looked at it.")
    assert not working.work(60) and Head.objects.get(pk=run.pk).cap_steps == 12
    said = {"verdict": "happened", "receipt": '{"ref": "R-1"}', "steps": "3"}  # what is of another act is let be
    operator.post("/bulk/new", agent="buyer", action="reconcile", justification=WHY, **said)
    second = Batch.objects.exclude(pk=batch.pk).get()
    digest = {"sha256": acts.receipt_digest({"ref": "R-1"})}
    assert second.said == {"verdict": "happened", "receipt": digest} and second.forecast["may"] == 0
    assert "It has no unknown outcome to settle" in operator.read(f"/bulk/{second.pk}")


@pytest.mark.parametrize("typed", ["--5", "-", "5-", "\u0665"])
def test_a_number_that_is_none_is_said_to_be_none(operator: Reader, typed: str) -> None:
    start()
    for said in ({"action": "priority", "priority": typed}, {"action": "budget", "steps": typed}):
        answer = operator.post("/bulk/new", agent="buyer", justification=WHY, **said)
        assert answer.status_code == 422 and not Batch.objects.exists()


def test_who_may_not_start_or_stop_it_is_offered_neither(operator: Reader, reader: Any) -> None:
    start()
    operator.post("/bulk/new", agent="buyer", action="pause", justification=WHY)
    batch = Batch.objects.get()
    offered = {
        who: [word for word in ("Start…", "Drop…") if word in of.read(f"/bulk/{batch.pk}")]
        for who, of in {"own": operator, "other": reader("operator", name="bert"), "auditor": reader("auditor")}.items()
    }
    assert offered == {"own": ["Start…", "Drop…"], "other": ["Drop…"], "auditor": []}
    answer = reader("operator", name="bert").post(f"/bulk/{batch.pk}/starts", justification=WHY)
    assert answer.status_code == 403 and Batch.objects.get().state == "draft"


def test_one_that_nobody_with_the_key_wrote_is_said_to_be_left_alone(operator: Reader) -> None:
    start()
    operator.post("/bulk/new", agent="buyer", action="pause", justification=WHY)
    batch = Batch.objects.get()
    operator.post(f"/bulk/{batch.pk}/starts", justification=WHY)
    assert "Workers go on with it" in operator.read(f"/bulk/{batch.pk}")
    as_superuser("UPDATE runs_batch SET action = 'cancel'")
    page = operator.read(f"/bulk/{batch.pk}")
    assert "No worker does it" in page and "Ask for it anew" in page and "Workers go on" not in page
    assert "left alone" in operator.read("/bulk") and not working.work(1)
