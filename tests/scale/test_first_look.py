"""The first look at a run in a process folds it whole: once, from what it needs, and believed no further than any other
fold."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import events as e
from ledger.append import append
from runs.models import Run
from runs.story import Fold, folded
from runs.story.transcript import Transcript
from tests.console.conftest import OLGA, Reader, agent, operator, reader, start  # noqa: F401 (fixtures)
from tests.scale.journals import life
from tests.scale.test_page import DAMAGE, Still, events, long_run, other_hands, plain, still, taped

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    folded.forget_all()
    yield
    folded.forget_all()


def between(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen once, when a first look knows of the rows and hasn't read them yet."""
    rows, todo = folded._rows, [happens]

    def known(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        found = rows(statement, *values)
        if statement == folded._KNOWN and todo:
            todo.pop()()
        return found

    monkeypatch.setattr(folded, "_rows", known)


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_changed_while_a_run_is_folded_shows_at_the_next_look(
    operator: Reader, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("runs.console.run_page.datetime", Still)
    run = long_run(40)
    between(monkeypatch, lambda: other_hands(DAMAGE[what], run.id))
    operator.get(f"/runs/{run.id}")
    with folded.folded(run.id) as kept:
        before = kept.fold
    shown = operator.get(f"/runs/{run.id}")
    folded.forget_all()
    assert still(shown) == still(operator.get(f"/runs/{run.id}")), what
    assert before.length == len(_rows_of(run))


def _rows_of(run: Run) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq FROM ledger_event WHERE run_id = %s", [run.id])
        return list(cursor.fetchall())


def test_what_happens_while_a_run_is_folded_is_taken_on_by_the_next_look(
    operator: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = long_run(40)
    between(monkeypatch, lambda: append(run.id, e.VisitEntered(node="nowhere", visit=1), by=OLGA))
    assert "nowhere" not in operator.read(f"/runs/{run.id}")
    with folded.folded(run.id) as kept:
        assert kept.fold.length == 41 and kept.fold.path[-1] == "nowhere"
        before = kept.fold
    with folded.folded(run.id) as kept:
        assert kept.fold is before


def test_a_run_longer_than_one_reading_is_folded_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    run = long_run(60)
    for at_once in (7, 30, 59, 60, 61):
        monkeypatch.setattr(folded, "AT_ONCE", at_once)
        folded.forget_all()
        with folded.folded(run.id) as kept:
            assert kept.fold.length == 60 and kept.last.seq == 60
            before = kept.fold
        with folded.folded(run.id) as kept:
            assert kept.fold is before, at_once


def test_news_longer_than_one_reading_are_taken_on_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for at_once in (2, 3, 7, 20, 21, 22):
        run = long_run(20)
        with folded.folded(run.id) as kept:
            before = kept.fold
        append(run.id, *(e.ValueRead(slot=f"more/{n}", what="now", payload="x") for n in range(20)), by=OLGA)
        monkeypatch.setattr(folded, "AT_ONCE", at_once)
        for _ in range(2):
            with folded.folded(run.id) as kept:
                assert kept.fold is before and kept.fold.length == 40 and kept.last.seq == 40, at_once


def test_a_first_look_carries_no_more_of_a_row_than_it_folds(operator: Reader) -> None:
    run = long_run(300)
    with CaptureQueriesContext(connection) as found:
        operator.get(f"/runs/{run.id}")
    whole = [
        query["sql"]
        for query in found.captured_queries
        if "ledger_event" in query["sql"]
        and not any(other in query["sql"] for other in ("= ANY", "last_at", "UndoRegistered"))
    ]  # beside the head: when the last event was, and whether its family has anything to undo
    assert len(whole) == 2 and "sealed" not in "".join(whole) and "hash" not in whole[1].partition("FROM")[0]


def test_the_collector_is_on_again_whatever_becomes_of_a_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    run, take, was_on = long_run(40), Fold.take, []

    def breaks(fold: Fold, line: Any) -> None:
        was_on.append(gc.isenabled())
        if line.seq == 20:
            raise MemoryError
        take(fold, line)

    monkeypatch.setattr(Fold, "take", breaks)
    with pytest.raises(MemoryError), folded.folded(run.id):
        pass
    assert gc.isenabled() and not any(was_on)


def test_threads_that_fold_at_once_leave_the_collector_on() -> None:
    meet = threading.Barrier(4)

    def fold() -> None:
        for _ in range(200):
            meet.wait()
            with folded._uncollected():
                pass

    threads = [threading.Thread(target=fold) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert gc.isenabled()


# --- conversations, which are put down and told apart later ---------------------------------------


def heard(made: list[e.Event], ask_after: Callable[[int], bool]) -> Any:
    fold = Fold()
    for n, line in enumerate(taped(made), 1):
        fold.take(line)
        if ask_after(n):
            fold.transcript.shown()
    told: Transcript = fold.transcript
    return plain(told.talks), told.events, told.owners


def check_asking(made: list[e.Event]) -> None:
    at_the_end = heard(made, lambda _: False)
    assert heard(made, lambda _: True) == heard(made, lambda n: n % 3 == 0) == at_the_end


def test_conversations_are_the_same_whenever_somebody_asks_for_them() -> None:
    check_asking(list(islice(life(), 150)))


@settings(max_examples=40, deadline=None)
@given(st.lists(events(), max_size=25))
def test_conversations_of_any_journal_are_the_same_whenever_somebody_asks_for_them(made: list[e.Event]) -> None:
    check_asking(made)


def test_only_who_looks_at_conversations_has_them_told_apart(operator: Reader) -> None:
    run = long_run(60)
    operator.get(f"/runs/{run.id}", tab="journal")
    with folded.folded(run.id) as kept:
        assert kept.fold.transcript.heard
    operator.get(f"/runs/{run.id}", tab="transcript")
    with folded.folded(run.id) as kept:
        assert kept.fold.transcript.heard == [] and kept.fold.transcript.talks
