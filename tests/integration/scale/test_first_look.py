"""The first look at a run in a process folds it whole: once, from what it needs, and believed no further than any other
fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import events as e
from ledger.append import append
from runs.models import Run
from runs.story import Fold, folded
from runs.story.transcript import Transcript
from tests.cases import each_case
from tests.integration.console.conftest import OLGA, Reader, agent, operator, reader, start  # noqa: F401 (fixtures)
from tests.integration.scale.test_page import DAMAGE, Still, events, long_run, other_hands, plain, still, taped

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


@each_case("what", DAMAGE)
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


@settings(max_examples=40, deadline=None)
@given(st.lists(events(), max_size=25))
def test_conversations_of_any_journal_are_the_same_whenever_somebody_asks_for_them(made: list[e.Event]) -> None:
    check_asking(made)
