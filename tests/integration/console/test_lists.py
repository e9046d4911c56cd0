"""Lists: filters are in the address, every run appears once, and a page's cost doesn't grow with their number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pydantic import BaseModel

from durableagents import Agent, Context, Date, End, Flag, Keyword, Keywords, Money, Number
from ledger import events as e
from ledger.append import append
from ledger.models import LedgerEntry
from ledger.verification.runs import verify
from runs.engine.agents import registry
from runs.models import Run, Wait
from runs.queries.run_list import PAGE
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.console.conftest import OLGA, SHOP, Reader, start, text_of
from tests.integration.console.test_start import form_of, opened
from tests.tampering import tamper

pytestmark = pytest.mark.django_db


def ids(answer: Any) -> list[str]:
    return re.findall(r'id="row-([0-9a-f-]{36})"', answer.content.decode())


def test_older_pages_follow_without_gap_or_repeat(operator: Reader) -> None:
    made = [str(start().id) for _ in range(PAGE + 5)]
    first = operator.get("/runs")
    older = re.search(r'href="(/runs\?before=[^"]+)"', first.content.decode())
    assert older is not None
    assert ids(first) + ids(operator.get(older.group(1))) == made[::-1]


@each_case(
    "query",
    [
        {"state": "nonsense"},
        {"before": "rubbish"},
        {"before": "MjAyMC0wMS0wMSB4"},
        {"q": "\x00"},
        {"agent": "@"},
        {"q": "%_'\""},
    ],
)
def test_a_made_up_filter_is_no_error(operator: Reader, query: dict[str, str]) -> None:
    start()
    assert operator.get("/runs", **query).status_code == 200


@pytest.mark.needs("search")
def test_a_run_is_found_by_what_people_have_in_hand(operator: Reader) -> None:
    """Its subject, a tag, a part of its id as shown, another system's id of its effect, its starter."""
    tags = {"team": "harbor", "invoice": "INV-2026-201"}
    run = lifecycle.start("buyer", {"item": "Nordlicht Antriebe GmbH", "why": "DE-811.907.980"}, by=SHOP, tags=tags)
    other = lifecycle.start("buyer", {"item": "chairs", "why": "84000.00"}, by=OLGA, tags=["spring sale"])
    LedgerEntry.objects.create(
        run_id=run.id,
        seq=1,
        slot="0.1/1",
        fact="committed",
        tool="buy",
        replay_class="pure",
        external_id="PO-9",
        actor="w",
        at=run.created_at,
    )
    mine = [
        "Nordlicht",
        "antriebe nordlicht",
        "NORDLICHT ANTRIEBE",
        "INV-2026-201",
        "inv-2026",
        "harbor",
        "team:harbor",
        "PO-9",
        "po-9",
        "DE-811.907.980",
    ]
    mine += [
        str(run.id),
        str(run.id)[-12:],
        str(run.id)[-4:],
        f"{str(run.id)[:4]}…{str(run.id)[-4:]}",
        f"{str(run.id)[:4]}...{str(run.id)[-4:]}",
        "shop",
    ]
    for q in mine:
        assert ids(operator.get("/runs", q=q)) == [str(run.id)], q
    for q in "spring|spring sale|sale spring|olga|chairs|$84,000.00|84,000|84000.00|$84,000 chairs".split("|"):
        assert ids(operator.get("/runs", q=q)) == [str(other.id)], q
    # A word of the input is found whole, since only its digest is stored; a tag also by its beginning.
    for q in ("nordlicht chairs", "harbor:team", "ordlicht", "nordl", "…", "%", "\U0010ffff"):
        assert ids(operator.get("/runs", q=q)) == [], q


@pytest.mark.needs("search")
def test_a_search_is_counted_by_state_and_paged(operator: Reader) -> None:
    runs = [lifecycle.start("buyer", {"item": "Nordlicht"}, by=SHOP) for _ in range(PAGE + 3)]
    start()
    operator.post(f"/runs/{runs[0].id}/pauses", justification="why")
    first = operator.get("/runs", q="nordlicht")
    text = operator.read("/runs", q="nordlicht")
    assert f"all {PAGE + 3}" in text and "paused 1" in text and "No runs fit" not in text
    older = re.search(r'href="(/runs\?[^"]*before=[^"]+)"', first.content.decode())
    assert older is not None
    assert ids(first) + ids(operator.get(unescape(older.group(1)))) == [str(run.id) for run in runs[::-1]]
    assert ids(operator.get("/runs", q="nordlicht", state="paused")) == [str(runs[0].id)]


def test_states_are_counted_and_filtered(operator: Reader) -> None:
    run, other = start(), start()
    operator.post(f"/runs/{run.id}/pauses", justification="why")
    assert ids(operator.get("/runs", state="paused")) == [str(run.id)]
    assert ids(operator.get("/runs", state="running")) == [str(other.id)]
    page = operator.read("/runs")
    assert "all 2" in page and "paused 1" in page and "running 1" in page


@each_case("path", ["/runs", "/", "/reconcile", "/audit", "/inbox"])
def test_a_list_costs_the_same_for_one_run_and_for_many(operator: Reader, path: str) -> None:
    counts = []
    for more in (1, 8):
        for _ in range(more):
            operator.post(f"/runs/{start().id}/pauses", justification="why")
        with CaptureQueriesContext(connection) as found:
            operator.get(path)
        counts.append(len(found))
    assert counts[0] == counts[1] and counts[0] <= 8


@each_case("tab", ["timeline", "transcript", "checkpoints", "decisions", "journal"])
def test_a_runs_page_costs_the_same_however_long_its_journal(operator: Reader, tab: str) -> None:
    run = start()
    counts = []
    for more in (1, 300):
        for n in range(more):
            append(run.id, e.ValueRead(slot=f"0.1/{more}.{n}", what="now", payload="x"), by=OLGA)
            operator.get(
                f"/runs/{run.id}"
            ) if not n else None  # what was folded once is queried incrementally from then on
        with CaptureQueriesContext(connection) as found:
            assert operator.get(f"/runs/{run.id}", tab=tab).status_code == 200
        counts.append(len(found))
    why = "three of them: who could drive it, whether it has effects to undo, and the halts that every page tells of"
    assert counts[0] == counts[1] <= 11, why


def test_the_journal_is_paged_newest_first(operator: Reader) -> None:
    run = start()
    for n in range(150):
        append(run.id, e.ValueRead(slot=f"0.1/{n}", what="now", payload=n), by=OLGA)

    def seqs(**query: str) -> list[int]:
        page = operator.get(f"/runs/{run.id}", tab="journal", **query).content.decode()
        return [int(n) for n in re.findall(r'class="event" id="e(\d+)"', page)]

    assert seqs() == list(range(151, 51, -1)) and seqs(before="52") == list(range(51, 0, -1))
    assert seqs(before="x") == seqs() and seqs(before="0") == []


def test_the_audit_is_filtered_by_act_person_and_run(operator: Reader, reader: Callable[..., Reader]) -> None:
    run, other = start(), start()
    operator.post(f"/runs/{run.id}/pauses", justification="first words")
    reader("operator", name="olga").post(f"/runs/{other.id}/cancellations", justification="other words")
    for query, has, lacks in [
        ({"action": "pause"}, "first", "other"),
        ({"by": "olga"}, "other", "first"),
        ({"run": str(run.id)}, "first", "other"),
    ]:
        page = operator.read("/audit", **query)
        assert f"{has} words" in page and f"{lacks} words" not in page
    for odd in ({"run": "zz"}, {"before": "never"}, {"action": "<b>"}):
        assert operator.get("/audit", **odd).status_code == 200


def test_the_page_of_a_verification_says_what_it_found(operator: Reader) -> None:
    run = start()
    assert "Verified. 1 event, chain intact" in operator.read(f"/runs/{run.id}/verification")
    tamper("UPDATE ledger_event SET sealed = '\\x007b7d' WHERE run_id = %s AND seq = 1", run.id)
    assert "event 1 was changed" in operator.read(f"/runs/{run.id}/verification")


@each_case(("option", "value"), [("where", "scoer = 1"), ("where", "score ="), ("sort", "labels")])
def test_what_can_not_be_read_is_one_line_and_exit_code_2(option: str, value: str) -> None:
    err = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("runs", stderr=err, stdout=StringIO(), **{option: value})
    assert ended.value.code == 2 and err.getvalue().startswith("runs: The ") and len(err.getvalue().splitlines()) == 1


@pytest.mark.needs("bulk")
def test_nobody_is_offered_what_only_others_may_say(reader: Callable[..., Reader]) -> None:
    start()
    seen = {}
    for role in ("operator", "approver_finance", "integrator"):
        page = reader(role).read("/bulk/new", agent="buyer")
        seen[role] = [word for word in ("Priority (-100", "Raise budget to", "Unknown outcomes") if word in page]
    assert seen == {
        "operator": ["Priority (-100", "Raise budget to", "Unknown outcomes"],
        "approver_finance": ["Raise budget to"],
        "integrator": [],
    }


class Wanted(BaseModel):
    item: str = ""
    attributes: dict[str, str] = {}  # the name used by the start form's own fields


@pytest.fixture(autouse=True)
def sale() -> Iterator[Agent]:
    declared = {
        "customer": Keyword("Customer"),
        "labels": Keywords(),
        "score": Number(),
        "amount": Money(),
        "due": Date(),
        "urgent": Flag(),
    }
    agent = Agent("sale", "1.0.0", input=Wanted, state=Wanted, attributes=declared)

    @agent.node(start=True)
    async def sell(state: Wanted, ctx: Context) -> End:
        return End()

    agent.validate()
    yield agent
    registry.remove(agent.graph_id)


def sold(**attributes: Any) -> str:
    return str(lifecycle.start("sale", {}, by=SHOP, attributes=attributes).id)


@pytest.mark.needs("search")
def test_what_is_typed_into_the_start_form_is_set(reader: Callable[..., Reader]) -> None:
    somebody = reader("integrator")
    typed = {
        "attributes.customer": "ACME & Co",
        "attributes.labels": "late,  new ,",
        "attributes.score": "2.50",
        "attributes.amount": "$1200",
        "attributes.due": "2026-03-31",
        "attributes.urgent": "false",
    }
    form = form_of(opened(somebody, agent="sale"), **typed)
    answer = somebody.client.post("/runs/new", form, follow=True)
    run = Run.objects.get()
    assert answer.redirect_chain == [(f"/runs/{run.id}", 302)]
    text = text_of(answer)
    plain = re.sub(r"[“”]", "", re.sub(r"\s+(?=[,”])|(?<=“)\s+", "", text))
    for value in (
        "Customer ACME & Co",
        "labels late, new",
        "score 2.5",
        "amount $1200.00",
        "due 2026-03-31",
        "urgent no",
    ):
        assert value in plain, (value, plain[:4000])
    assert verify(run.id).problems == []
    again = somebody.client.post("/runs/new", form, follow=True)
    assert "already started this run" in text_of(again) and Run.objects.count() == 1


@pytest.mark.needs("search")
def test_the_list_is_searched_sorted_and_paged(operator: Reader) -> None:
    made = [sold(score=n, customer="ACME" if n % 2 else "Beta") for n in range(PAGE + 5)]
    assert ids(operator.get("/runs", where="score >= 50")) == made[:49:-1]
    both = {"where": "customer = ACME and score < 5", "sort": "score"}
    assert ids(operator.get("/runs", **both)) == [made[1], made[3]]
    assert "all 2" in operator.read("/runs", **both) and "score 3" in operator.read("/runs", **both)
    first = operator.get("/runs", sort="-score")
    more = re.search(r'href="(/runs\?[^"]*before=[^"]+)"', first.content.decode())
    assert more is not None
    assert ids(first) + ids(operator.get(unescape(more.group(1)))) == made[::-1]
    assert ids(operator.get("/runs", sort="-score", before="rubbish")) == ids(first)
    assert ids(operator.get("/runs", where="score = 1", state="paused")) == []


@pytest.mark.needs("search")
def test_hostile_text_is_shown_as_text(operator: Reader) -> None:
    run = sold(customer="<img src=x onerror=alert(1)>", labels=["<script>alert(2)</script>", "a"])
    for answer in (operator.get(f"/runs/{run}"), operator.get("/runs", where="customer is set")):
        page = answer.content.decode()
        assert (
            "<img src=x" not in page
            and "<script>alert(2)" not in page
            and ("&lt;img" in page or "img src=x" in text_of(answer))
        )


@pytest.mark.needs("bulk")
def test_runs_show_since_when_they_wait_and_are_filtered_and_ordered_by_it(operator: Reader) -> None:
    newer, older, _ = start(), start(), start()
    now = timezone.now()
    for run, hours, late in ((older, 30, -1), (newer, 2, 1)):
        opened, deadline = now - timedelta(hours=hours), now + timedelta(hours=late)
        Wait.objects.create(
            id=uuid4(), run=run, slot="0/1", kind="webhook", opened_at=opened, deadline=deadline, detail={}
        )
    both = operator.get("/runs", sort="waiting_since")
    assert ids(both) == [str(older.id), str(newer.id)] and "overdue" in text_of(both)
    assert ids(operator.get("/runs", sort="waiting_deadline", wait="any")) == ids(both)
    for query in ({"wait": "overdue"}, {"older": "1d"}, {"older": "8h", "wait": "any"}):
        page = operator.get("/runs", **query)
        assert ids(page) == [str(older.id)] and "all 1" in text_of(page)
        # A bulk job has the same filters, so that it concerns the runs that are listed.
        assert "Bulk actions: 1 run" in text_of(operator.get("/bulk/new", **query))
    assert "all 2" in text_of(both) and "Bulk actions: 2 runs" in text_of(
        operator.get("/bulk/new", sort="waiting_since")
    )
    refused = operator.get("/runs", wait="overdue", where="amount > 1")
    assert refused.status_code == 200 and "combined" in text_of(refused)
