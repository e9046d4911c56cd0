"""What the look at an act on many runs says would be refused, and in which words, is what comes of it: for every act,
and every situation that a run comes into by living."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from ledger.actors import Actor
from runs.engine.budget.limits import Budget
from runs.models import Run
from runs.queries.why.answer import why
from runs.queries.why.seen import Reader, look_at
from runs.services import lifecycle
from runs.services.budgets import raising
from tests.runs.situations import ALL
from tests.runs.stage import Stage
from tests.runs.test_budgets import ordering
from tests.runs.test_bulk import ask, finish, operator
from tests.runs.test_forks import fork
from tests.runs.test_why import MORE, Lives, serve, undone
from tests.world import OLGA, SHOP, Toolbox

pytestmark = pytest.mark.django_db
Who = tuple[Actor, frozenset[str]]
ACTS: list[tuple[str, dict[str, Any]]] = [
    ("pause", {}),
    ("resume", {}),
    ("cancel", {}),
    ("cancel", {"effects": "leave"}),
    ("retry", {}),
    ("priority", {"priority": 3}),
    ("requeue", {}),
    ("budget", {"budget": {"steps": 20}}),
    ("budget", {"budget": {"tool_calls": 9, "usd": "2.50"}}),
    ("budget", {"budget": {"wall_seconds": 5}}),
    ("reconcile", {"verdict": "fail"}),
]


class Told(Lives):
    """The same, and some that are odd to acts on many."""

    def capped(self) -> Run:
        """It may use less than the acts here give, of one thing."""
        return lifecycle.start(self.agent.graph_id, {}, by=SHOP, budget=Budget(steps=5, tool_calls=50))

    def completed_capped(self) -> Run:
        run = lifecycle.start(ordering(self.tools, "order").graph_id, {}, by=SHOP, budget=Budget(tool_calls=5, steps=9))
        assert self.stage.drive() == "completed"
        return run

    def short_of_time(self) -> Run:
        """Its time is not up, and has been longer than the acts here give."""
        run = lifecycle.start(self.agent.graph_id, {}, by=SHOP, budget=Budget(wall_seconds=1))
        Run.objects.filter(pk=run.pk).update(created_at=run.created_at - timedelta(seconds=60))
        with connection.cursor() as cursor:
            cursor.execute("UPDATE runs_run SET time_up_at = created_at + interval '1 second' WHERE id = %s", [run.pk])
        return run

    def ready_meanwhile(self) -> Run:
        """Its time came after its row was written last."""
        run = self.asleep()
        Run.objects.filter(pk=run.pk).update(state="running", updated_at=run.created_at)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE runs_run SET ready_at = updated_at + interval '1 ms' WHERE id = %s", [run.pk])
        return run

    def asked_at_work(self) -> Run:
        """A person has asked to pause it, and its time is up, before its worker has come to a boundary."""
        run = self.asked_to_pause()
        Run.objects.filter(pk=run.pk).update(time_up_at=run.created_at)
        raising.time_is_up(run.pk)
        return run

    def begun_again(self) -> Run:
        """Failed, and begun again as another run, which is to do its work."""
        run = self.failed()
        fork(run, 1)
        return run

    def paused_begun_again(self) -> Run:
        run = self.paused_asleep()
        fork(run, 1)
        return run

    def key_lives(self) -> Run:
        """Failed, and its key has gone on to another run."""
        run = self.failed()
        other = self.pending()
        Run.objects.filter(pk__in=[run.pk, other.pk]).update(business_key="po-7")
        return run

    def doubts(self) -> Run:
        """Two outcomes of it are unknown."""
        run = self.unknown()
        wait = run.waits.get(kind="reconcile")
        wait.pk, wait.slot, wait._state.adding = wait.run_id, "tool/other/1", True
        wait.save(force_insert=True)
        return run


ODD = [
    "capped",
    "completed_capped",
    "short_of_time",
    "ready_meanwhile",
    "asked_at_work",
    "begun_again",
    "paused_begun_again",
    "key_lives",
    "doubts",
]


@pytest.fixture
def told(stage: Stage, tools: Toolbox) -> Told:
    made = Told(stage, tools)
    serve(stage, made.agent.graph_id)
    return made


def foretold_and_come(who: Who, run: Run, action: str, said: dict[str, Any]) -> tuple[Any, Any]:
    """What the look says, and what comes: None where it is done, or else the code and the words."""
    with undone():
        batch = ask(who, action, runs=[str(run.pk)], **said)
        (refused,) = batch.forecast["refused"] or [None]
        assert batch.forecast["may"] == (refused is None)
        finish(batch)
        item = batch.items.get()
    assert item.outcome in ("done", "refused"), item.why
    return (
        None if refused is None else (refused["code"], refused["why"]),
        None if item.outcome == "done" else (item.code, item.why),
    )


@pytest.mark.parametrize("name", [*ALL, *MORE, *ODD])
def test_what_is_foretold_of_a_run_is_what_comes(told: Told, name: str) -> None:
    olga, run, wrong = operator(), told.make(name), []
    for action, said in ACTS:
        foretold, came = foretold_and_come(olga, run, action, said)
        if foretold != came:
            wrong.append((action, said, foretold, came))
    assert wrong == []


@pytest.mark.parametrize("name", ["budget", "budget_held", "asked_at_work", "begun_again", "key_lives"])
def test_what_a_run_s_page_says_of_an_act_is_what_is_foretold_of_it_among_many(told: Told, name: str) -> None:
    olga, run = operator(), told.make(name)
    offers = {offer.act: offer for offer in why(look_at(run.pk), Reader(*olga)).acts}
    for action in ("pause", "resume", "retry"):
        foretold, _ = foretold_and_come(olga, run, action, {})
        offer = offers[action]
        assert foretold == (None if offer.is_allowed else (offer.code, offer.why_not)), action


def test_what_waits_for_its_budget_is_paused_by_the_act_on_many_and_told_how_it_goes_on(told: Told) -> None:
    olga, run = operator(), told.make("budget")
    assert foretold_and_come(olga, run, "pause", {}) == (None, None)
    for make_so, words in ((lambda: None, "it goes on by itself"), (lambda: pause(run), "resume it then")):
        make_so()
        foretold, came = foretold_and_come(olga, run, "resume", {})
        assert foretold == came and words in foretold[1]
    foretold, came = foretold_and_come(olga, run, "pause", {})
    assert foretold == came and "paused it already" in foretold[1]


def pause(run: Run) -> None:
    lifecycle.pause(run.pk, by=OLGA, justification="hold on")


def test_each_is_told_in_its_own_words_where_they_stand_together(told: Told) -> None:
    """Budgets to raise: of what is over, of what may use as much, and of what may not."""
    olga = operator()
    runs = {name: told.make(name) for name in ("completed_capped", "pending", "capped")}
    batch = ask(olga, "budget", runs=[str(run.pk) for run in runs.values()], budget={"steps": 20})
    assert batch.forecast["may"] == 1
    words = {one["some"][0]: one["why"] for one in batch.forecast["refused"]}
    assert "It is over." in words[str(runs["completed_capped"].pk)]
    assert "It may use as much already" in words[str(runs["pending"].pk)]
    finish(batch)
    assert {str(i.run_id): i.why for i in batch.items.filter(outcome="refused")} == words


def test_what_many_need_more_of_is_said_of_them_in_one_line(told: Told) -> None:
    runs = [told.make("short_of_time") for _ in range(2)]
    Run.objects.filter(pk=runs[0].pk).update(created_at=runs[0].created_at - timedelta(seconds=9))
    batch = ask(operator(), "budget", runs=[str(run.pk) for run in runs], budget={"wall_seconds": 15})
    (no,) = batch.forecast["refused"]
    assert (no["code"], no["runs"]) == ("invalid-input", 2)
