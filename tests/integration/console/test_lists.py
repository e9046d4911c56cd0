"""Lists: filters live in the address, every run comes once, and a page costs the same however many there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import events as e
from ledger.append import append
from ledger.models import LedgerEntry
from runs.queries.run_list import PAGE
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.console.conftest import OLGA, SHOP, Reader, start

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


def test_a_run_is_found_by_what_people_have_in_hand(operator: Reader) -> None:
    """Whom it is about, a tag, a part of its id as a page shows it, what another system calls its effect, who started
    it."""
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
        "nordl",
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
    for q in ("nordlicht chairs", "harbor:team", "ordlicht", "…", "%", "\U0010ffff"):
        assert ids(operator.get("/runs", q=q)) == [], q


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
        with CaptureQueriesContext(
            connection,
        ) as found:
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
            operator.get(f"/runs/{run.id}") if not n else None  # what is folded once is asked after from then on
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


class TestVerification:
    def test_a_sound_journal_holds(self, operator: Reader) -> None:
        assert "The journal holds. 1 event, gapless" in operator.read(f"/runs/{start().id}/verification")

    @each_case(
        ("change", "words"),
        [
            ("UPDATE ledger_event SET sealed = '\\x007b7d' WHERE run_id = %s AND seq = 1", "event 1 was changed"),
            ("DELETE FROM ledger_event WHERE run_id = %s AND seq = 2", "event 2 is missing"),
            ("DELETE FROM ledger_event WHERE run_id = %s AND seq = 3", "the journal ends at event 2, the head says 3"),
            (
                "UPDATE ledger_event SET at = at + interval '1 hour' WHERE run_id = %s AND seq = 2",
                "event 2 was changed",
            ),
        ],
    )
    def test_what_a_superuser_does_behind_the_back_is_found(self, operator: Reader, change: str, words: str) -> None:
        run = start()
        for n in range(2):
            append(run.id, e.ValueRead(slot=f"0.1/{n}", what="now", payload=n), by=OLGA)
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(change, [run.id])
        assert words in operator.read(f"/runs/{run.id}/verification")
