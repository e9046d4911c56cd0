"""Acting on many runs from the list: what fits is frozen and looked at, started by a person, done by a worker, and told
run by run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.models import OverrideRecord
from runs.models import Batch, Run
from runs.services import lifecycle
from runs.services.bulk import working
from tests.integration.console.conftest import OLGA, Reader, start, text_of

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


def test_hostile_text_is_inert(operator: Reader) -> None:
    start()
    operator.post("/bulk/new", agent="buyer", action="pause", justification="<img src=x onerror=alert(1)>")
    batch = Batch.objects.get()
    for path in ("/bulk", f"/bulk/{batch.pk}"):
        assert "<img src=x" not in operator.get(path).content.decode()


def test_an_auditor_reads_and_does_nothing(reader: type[Reader], operator: Reader) -> None:
    start()
    operator.post("/bulk/new", agent="buyer", action="pause", justification=WHY)
    auditor = reader("auditor")
    page = auditor.read(f"/bulk/{Batch.objects.get().pk}")
    assert "Start…" not in page and "Act on all that fit" not in auditor.read("/runs")
