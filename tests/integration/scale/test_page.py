"""A run's page costs what it shows, not the run's length, and the database overrides its cache."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import events as e
from ledger.append import append
from ledger.models import Event
from runs.console.run_views import TABS
from runs.models import Run
from runs.story import Bare, Fold, folded, line_of, read, tell
from runs.story.conversation import transcript
from runs.story.lines import EventLine
from runs.story.transcript import Transcript
from tests.cases import each_case
from tests.integration.console.conftest import (  # noqa: F401 (fixtures)
    OLGA,
    Reader,
    agent,
    operator,
    reader,
    start,
)
from tests.integration.console.stage import settled, working
from tests.integration.console.tape import NOON
from tests.integration.scale.journals import lived
from tests.tampering import tamper
from tests.tiers import sample

pytestmark = pytest.mark.django_db
LONG = 10_000
# Each window of a page is far below this; the run is far above.
MAX_READ = 800


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    folded.forget_all()
    yield
    folded.forget_all()


def long_run(events: int = LONG) -> Run:
    run = start()
    lived(run.id, events - 1)
    return run


def scanned(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + statement.replace("%", "%%"))
        found = cursor.fetchone()[0]
    return sum(_rows((json.loads(found) if isinstance(found, str) else found)[0]["Plan"]))


def _rows(plan: dict[str, Any]) -> Iterator[int]:
    if plan.get("Relation Name") == "ledger_event":
        dropped = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        yield int((plan["Actual Rows"] + dropped) * plan["Actual Loops"])
    for below in plan.get("Plans", []):
        yield from _rows(below)


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    names = (
        Bare.__slots__ if isinstance(value, (Bare, EventLine)) else getattr(type(value), "__dataclass_fields__", None)
    )
    return value if names is None else {name: plain(getattr(value, name)) for name in names if not name.startswith("_")}


@pytest.mark.timeout(300)
def test_a_live_refresh_reads_what_is_new_and_what_is_shown(operator: Reader) -> None:
    run = long_run()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_event")
    for n, tab in enumerate(TABS):
        assert operator.get(f"/runs/{run.id}", tab=tab).status_code == 200
        append(run.id, e.ValueRead(slot=f"new/{n}", what="now", payload="x"), by=OLGA)
        with CaptureQueriesContext(connection) as found:
            page = operator.get(f"/runs/{run.id}", tab=tab, fragment="live")
        assert f'data-seq="{LONG + n + 1}"' in page.content.decode()
        items = [
            query["sql"]
            for query in found.captured_queries
            if "ledger_event" in query["sql"] and not query["sql"].startswith("EXPLAIN")
        ]
        folds = [statement for statement in items if "xmin" in statement]
        assert len(folds) == 1 and scanned(folds[0]) == 2, tab  # the last one folded, and the new one
        assert sum(map(scanned, items)) <= MAX_READ, tab


@pytest.mark.timeout(300)
def test_ten_times_the_events_are_no_more_statements_and_no_longer_page(operator: Reader) -> None:
    short, long = long_run(1_000), long_run(LONG)
    for tab in TABS:
        sizes, counts = [], []
        for run in (short, long):
            operator.get(f"/runs/{run.id}", tab=tab)
            with CaptureQueriesContext(connection) as found:
                sizes.append(len(operator.get(f"/runs/{run.id}", tab=tab).content))
            counts.append(len(found))
        assert counts[0] == counts[1] and sizes[1] < sizes[0] * 1.5, (tab, sizes, counts)


def test_readers_share_a_fold(monkeypatch: pytest.MonkeyPatch, operator: Reader, reader: Callable[..., Reader]) -> None:
    run, taken = long_run(300), []
    take = folded.CachedStory._take
    monkeypatch.setattr(folded.CachedStory, "_take", lambda kept, rows: (taken.append(len(rows)), take(kept, rows))[1])
    for _ in range(3):
        for one in (operator, reader("auditor")):
            for tab in TABS:
                one.get(f"/runs/{run.id}", tab=tab, fragment="live")
    assert taken == [300]


def check_every_prefix(lines: list[EventLine]) -> None:
    """Assert that a fold shows after each event what a new fold of that prefix shows."""
    fold, so_far = Fold(), {}
    for n, line in enumerate(lines, 1):
        fold.take(line)
        so_far[line.seq] = line
        now = line.at + timedelta(seconds=3)
        renewed = tell(lines[:n], now)
        renewed.talks = []
        story = fold.story(now).open(lambda seqs: {seq: so_far[seq] for seq in seqs if seq in so_far})
        story.talks = []
        assert plain(story) == plain(renewed), line


def taped(events: list[e.Event]) -> list[EventLine]:
    return [line_of(event, seq=n, at=NOON + timedelta(seconds=n * 7)) for n, event in enumerate(events, 1)]


_SOME: dict[str, list[Any]] = {
    "str": "x approve approved rejected happened did_not 0.1/1 input timer operator user:o waiting_human".split(),
    "int": [0, 1],
    "bool": [True, False],
    "list[str]": [["x"], []],
    "str | None": [None, "0.1/1"],
    "int | None": [None, 5],
}
_PAYLOADS: list[Any] = [
    None,
    {},
    "words",
    {"arguments": {"a": 1}, "key": "k"},
    {"result": {"r": 1}},
    {"reason": "Traceback (most recent call last)\nE: y"},
    {"justification": "w"},
]


@st.composite
def events(draw: Any) -> e.Event:
    kind = e.KINDS[draw(st.sampled_from(sorted(e.KINDS)))]
    fields = {
        name: draw(st.sampled_from(_SOME.get(str(hint), [[]])))
        for name, hint in kind.__annotations__.items()
        if "ClassVar" not in str(hint)
    }
    slot, attempt = draw(st.sampled_from([None, "0.1/1", "0.1/2", "0.1/1/0/0"])), draw(st.integers(0, 1))
    return kind(slot=slot, attempt=attempt, payload=draw(st.sampled_from(_PAYLOADS)), **fields)


@settings(max_examples=30, deadline=None)
@given(st.lists(events(), max_size=25))
def test_any_journal_is_told_alike_whether_it_is_followed_or_read_afterwards(made: list[e.Event]) -> None:
    check_every_prefix(taped(made))


@pytest.mark.django_db(transaction=True)
def test_real_runs_are_told_alike_whether_they_are_followed_or_read_afterwards() -> None:
    runs = [start(), start(ending="unknown"), start(ending="bug")]
    with working():
        for run in runs:
            settled(run, "waiting_human", "failed", "completed")
    for run in runs:
        lines = list(read(Event.objects.filter(run_id=run.id).order_by("seq")))
        assert len(lines) > 3
        check_every_prefix(lines)


class Still(datetime):
    """A stopped clock, so that two pages can be compared."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return NOON + timedelta(days=5000)


def still(answer: Any) -> str:
    return re.sub(
        r" data-as-of=\"\d+\"|<time [^>]*data-since.*?</time>|csrfmiddlewaretoken[^>]*>",
        "",
        answer.content.decode(),
        flags=re.DOTALL,
    )


def test_a_following_page_equals_an_opened_one(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.console.run_page.datetime", Still)
    run = start()
    for done in range(0, 80, 20):
        lived(run.id, 20, after=done)
        for tab in TABS:
            followed = operator.get(f"/runs/{run.id}", tab=tab, fragment="live")
            kept = folded.cached_stories()
            folded.forget_all()
            assert (
                still(operator.get(f"/runs/{run.id}", tab=tab, fragment="live")) == still(followed) and run.id in kept
            ), (done, tab)


DAMAGE = {
    "an old event says something else": 'UPDATE ledger_event SET clear = \'{"kind":"VisitEntered","visit":1}\' WHERE '
    "run_id = %s AND seq = 3",
    "an old event is gone": "DELETE FROM ledger_event WHERE run_id = %s AND seq = 3",
    "the last events are gone": "DELETE FROM ledger_event WHERE run_id = %s AND seq > 30",
    "all events are gone": "DELETE FROM ledger_event WHERE run_id = %s",
    "the last event says something else": "UPDATE ledger_event SET clear = '5' WHERE run_id = %s AND seq = 40",
}


@each_case("what", DAMAGE)
@each_case("tab", sample(TABS, 2))
def test_damage_shows_when_the_page_opens(
    operator: Reader, monkeypatch: pytest.MonkeyPatch, what: str, tab: str
) -> None:
    monkeypatch.setattr("runs.console.run_page.datetime", Still)
    run = long_run(40)
    sound = operator.get(f"/runs/{run.id}", tab=tab)
    tamper(DAMAGE[what], run.id)
    value = operator.get(f"/runs/{run.id}", tab=tab)
    folded.forget_all()
    assert still(value) == still(operator.get(f"/runs/{run.id}", tab=tab)) != still(sound)
    assert value.status_code == 200 and ("is damaged" in value.content.decode() or "something else" not in what)


def test_damage_to_an_old_event_shows_in_a_page_that_is_only_brought_up_to_date_within_seconds(
    operator: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = long_run(40)
    operator.get(f"/runs/{run.id}")
    tamper(DAMAGE["an old event says something else"], run.id)
    monkeypatch.setattr(folded, "UNASKED_SECONDS", -1.0)
    assert "is damaged" in operator.read(f"/runs/{run.id}", fragment="live")


def test_an_event_that_does_not_link_to_what_is_kept_has_the_run_read_again(operator: Reader) -> None:
    run = long_run(40)
    with folded.locked_story(run.id) as kept:
        before = kept.fold
    Event.objects.create(
        run_id=run.id,
        seq=41,
        epoch=0,
        at=run.created_at,
        kind="RunReleased",
        clear=b'{"kind":"RunReleased","reason":"x"}',
        prev_hash=bytes(32),
        hash=bytes(32),
    )
    with folded.locked_story(run.id, is_opened=False) as kept:
        assert kept.fold is not before and kept.fold.length == 41


def test_what_was_rolled_back_is_forgotten(operator: Reader) -> None:
    run = long_run(40)
    with transaction.atomic():
        append(run.id, e.VisitEntered(node="nowhere", visit=1), by=OLGA)
        assert "nowhere" in operator.read(f"/runs/{run.id}")
        transaction.set_rollback(True)
    assert "nowhere" not in operator.read(f"/runs/{run.id}", fragment="live")


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
def test_readers_at_once_see_whole_stories_while_the_run_goes_on() -> None:
    run, wrong, is_over = long_run(400), [], threading.Event()

    def look() -> None:
        try:
            while not is_over.is_set():
                with folded.locked_story(run.id, is_opened=False) as kept:
                    story = kept.fold.story(NOON)
                opened = story.open(folded.Opened(run.id))
                seqs = [row.seq for row in opened.timeline.rows[1:]]
                if seqs != sorted(seqs) or opened.last is None or opened.last.seq != opened.length:
                    wrong.append(opened.length)
        except Exception as error:  # reported by the assertion below, in the test's own thread
            wrong.append(error)
        finally:
            connections.close_all()

    readers = [threading.Thread(target=look) for _ in range(6)]
    for one in readers:
        one.start()
    for done in range(400, 800, 40):
        lived(run.id, 40, after=done - 1)
    is_over.set()
    for one in readers:
        one.join()
    assert wrong == []
    with folded.locked_story(run.id, is_opened=False) as kept:
        story = kept.fold.story(NOON).open(folded.Opened(run.id))
    renewed = tell(read(Event.objects.filter(run_id=run.id).order_by("seq")), NOON)
    story.talks = renewed.talks = []
    assert plain(story) == plain(renewed)


def test_what_is_kept_is_bounded_and_the_longest_unseen_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [long_run(60) for _ in range(4)]
    for run in runs[:3]:
        with folded.locked_story(run.id):
            pass
    room = sum(folded.cached_stories().values())
    monkeypatch.setattr(folded, "MAX_BYTES", room)
    for run in (runs[0], runs[3]):
        with folded.locked_story(run.id):
            pass
    assert runs[1].id not in folded.cached_stories() and {runs[0].id, runs[3].id} <= set(folded.cached_stories())
    assert sum(folded.cached_stories().values()) <= room
    monkeypatch.setattr(folded, "MAX_RUNS", 2)
    with folded.locked_story(runs[2].id):
        pass
    assert len(folded.cached_stories()) == 2


def between(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Run `happens` once, between a page's look at the rows and its reading them."""
    rows, todo = folded._rows, [happens]

    def known(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        found = rows(statement, *values)
        if statement == folded._KNOWN and todo:
            todo.pop()()
        return found

    monkeypatch.setattr(folded, "_rows", known)


@each_case("what", DAMAGE)
def test_a_change_during_a_fold_shows_next_time(operator: Reader, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr("runs.console.run_page.datetime", Still)
    run = long_run(40)
    between(monkeypatch, lambda: tamper(DAMAGE[what], run.id))
    operator.get(f"/runs/{run.id}")
    with folded.locked_story(run.id) as kept:
        before = kept.fold
    value = operator.get(f"/runs/{run.id}")
    folded.forget_all()
    assert still(value) == still(operator.get(f"/runs/{run.id}")), what
    assert before.length == len(_rows_of(run))


def _rows_of(run: Run) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq FROM ledger_event WHERE run_id = %s", [run.id])
        return list(cursor.fetchall())


def test_events_during_a_fold_are_read_at_the_next_look(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    run = long_run(40)
    between(monkeypatch, lambda: append(run.id, e.VisitEntered(node="nowhere", visit=1), by=OLGA))
    assert "nowhere" not in operator.read(f"/runs/{run.id}")
    with folded.locked_story(run.id) as kept:
        assert kept.fold.length == 41 and kept.fold.path[-1] == "nowhere"
        before = kept.fold
    with folded.locked_story(run.id) as kept:
        assert kept.fold is before


def heard(made: list[e.Event], ask_after: Callable[[int], bool]) -> Any:
    fold = Fold()
    for n, line in enumerate(taped(made), 1):
        fold.take(line)
        if ask_after(n):
            fold.transcript.shown()
    transcript: Transcript = fold.transcript
    return plain(transcript.talks), transcript.events, transcript.owners


def check_asking(made: list[e.Event]) -> None:
    at_the_end = heard(made, lambda _: False)
    assert heard(made, lambda _: True) == heard(made, lambda n: n % 3 == 0) == at_the_end


@settings(max_examples=40, deadline=None)
@given(st.lists(events(), max_size=25))
def test_conversations_of_any_journal_are_the_same_whenever_somebody_asks_for_them(made: list[e.Event]) -> None:
    check_asking(made)


def test_a_transcript_in_pages_is_the_transcript() -> None:
    run = long_run(700)
    whole = transcript(run.id, most=10_000)
    assert len(whole) > 300 and [row.shown["seq"] for row in whole] == sorted(row.shown["seq"] for row in whole)
    numbers: dict[str, int] = {}
    for row in whole:
        assert row.shown["idx"] == numbers.get(row.shown["conversation"], 0)
        numbers[row.shown["conversation"]] = row.shown["idx"] + 1
    for size in (1, 7, 100):
        place, rows = (0, 0), []
        while some := transcript(run.id, most=size, since=place):
            rows += some
            place = some[-1].following
            if size == 1 and len(rows) > 60:
                break
            folded.forget_all() if len(rows) % 3 == 0 else None
        assert [row.shown for row in rows] == [row.shown for row in whole[: len(rows)]] and (
            size == 1 or len(rows) == len(whole)
        )
    assert [row.shown for row in transcript(run.id, most=5, skip=100)] == [row.shown for row in whole[100:105]]


@pytest.mark.timeout(300)
def test_a_page_of_a_transcript_reads_what_it_shows() -> None:
    run = long_run(3_000)
    transcript(run.id, most=10)
    for place in ((0, 0), (2_500, 0)):
        with CaptureQueriesContext(connection) as found:
            rows = transcript(run.id, most=10, since=place)
        items = [query["sql"] for query in found.captured_queries if "xmin" not in query["sql"]]
        assert len(rows) == 10 and sum(map(scanned, items)) <= 100, place
