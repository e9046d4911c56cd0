"""Lists: filters are in the address, every run appears once, and a page's cost doesn't grow with their number."""

from __future__ import annotations

import pytest

from durableagents.contrib.bulk import working
from durableagents.contrib.bulk.models import Batch
from ledger.models import OverrideRecord
from runs.models import Run
from runs.services import lifecycle
from tests.integration.console.conftest import OLGA, Reader, agent, operator, reader, start, text_of  # noqa: F401 (fixtures)
from tests.integration.console.test_lists import ids, sale, sold  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db


WHY = "The supplier is down."


def test_all_that_fit_are_looked_at_started_and_told_one_by_one(operator: Reader) -> None:
    runs = [start(item=f"chair {n}") for n in range(3)]
    lifecycle.cancel(runs[0].pk, by=OLGA, justification="not this one")
    assert "Bulk actions" in operator.read("/runs", agent="buyer")
    page = operator.read("/bulk/new", agent="buyer")
    assert "Bulk actions: 3 runs" in page and "buyer" in page
    answer = operator.post("/bulk/new", agent="buyer", action="pause", justification=WHY)
    batch = Batch.objects.get()
    assert answer.status_code == 302 and answer["Location"] == f"/bulk/{batch.pk}" and batch.state == "draft"
    page = operator.read(f"/bulk/{batch.pk}")
    assert "It applies to 2 of 3 runs" in page and "1 would be refused" in page and WHY in page
    assert not working.work(1)
    start(item="came later")
    assert operator.post(f"/bulk/{batch.pk}/starts", justification="Looked at it.").status_code == 302
    assert "in progress" in operator.read(f"/bulk/{batch.pk}") and "Stop…" in operator.read(f"/bulk/{batch.pk}")
    # no run's event announces the end of the last one: the page polls
    assert "data-every" in operator.get(f"/bulk/{batch.pk}").content.decode()
    assert not working.work(60)
    page = operator.read(f"/bulk/{batch.pk}")
    assert "2 done, 1 refused" in page and "can't pause" in page
    assert "Start…" not in page and "Stop…" not in page
    assert (
        Run.objects.filter(state="paused").count() == 2 and OverrideRecord.objects.filter(action="pause").count() == 2
    )
    refused = operator.read(f"/bulk/{batch.pk}", outcome="refused")
    assert str(runs[0].pk)[-4:] in refused and "Pause 3 runs" in operator.read("/bulk")


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


def test_a_filter_that_can_not_be_read_is_refused_and_does_not_choose_all(operator: Reader) -> None:
    run = sold(customer="ACME")
    start()
    for name, value in (
        *((name, "zz") for name in ("state", "older", "wait", "parent", "created_from", "trace_id", "sort", "where")),
        ("business_key", "q"),
        ("agent", "x" * 201),
    ):
        for answer in (
            operator.get("/bulk/new", **{name: value}),
            operator.post("/bulk/new", action="pause", justification=WHY, **{name: value}),
        ):
            assert answer.status_code in (400, 422) and "Bulk actions: 0 runs" in text_of(answer), (name, answer)
            assert "no filter is set" not in text_of(answer)
    assert not Batch.objects.exists()
    for query in ({"sort": "customer"}, {"sort": "-customer", "where": "customer = ACME or customer = B"}):
        assert ids(operator.get("/runs", **query)) == [str(run)]
        assert "Bulk actions: 1 run" in text_of(operator.get("/bulk/new", **query))


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
    assert "Start…" not in page and "Bulk actions" not in auditor.read("/runs")
