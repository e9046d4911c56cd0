"""Everybody around the runs of `agents_steered.py`: what one of two had said, handed over, halted or half done then is
brought to its end by today's code, each effect once, and as it was said then."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from approvals.models import Approval
from approvals.timing.course import read, runs_out
from durableagents import Budget
from ledger import events as e
from ledger.errors import Forbidden, Proposed
from ledger.four_eyes import changes, guards
from ledger.four_eyes.guards import GuardsBody
from ledger.models import RuleChange
from ledger.verification.runs import verify
from runs.models import NEVER, Batch, Halt, Run, Wait
from runs.services import lifecycle, reconciling, signals
from runs.services.budgets.raising import set_budget
from runs.services.bulk import working
from runs.services.fleet import hosts
from runs.services.settling.agreeing import AlreadySaid
from runs.workers import failover
from tests.approvals.timing import sweep
from tests.halts.halting import everybody_goes_on, lift
from tests.runs.stage import Stage, events, now, output, waiting
from tests.upgrade import agents_steered as a
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.cast_granted import actor as signed_in
from tests.upgrade.make_steered import (
    CASES,
    ENDED,
    HAPPENED,
    PAUSED_TOGETHER,
    SAID_TOGETHER,
    SILENT,
    WHY,
    actor,
    approve,
)
from tests.upgrade.people_later import Asked
from tests.world import OLGA, SHOP

SIGNAL = {"a": 1}
DID_NOT = {"verdict": "did_not", "receipt": None}
WHAT = {"post": ["post"], "clear": ["clear"], "break": ["clear"], "deliver": ["deliver"], "note": ["deliver"],
        "think": ["clear"], "wait": [], "reserve": ["reserve", "deliver"], "undo": ["reserve", "free"]}  # fmt: skip
STOOD = ("halted by a calendar", "halted a while, and asked", "retried, and asked again", "failed while it asked")
# At the least from when the dump was made until it is gone on with: what stood still meanwhile has stood as long.
MINUTE = timedelta(minutes=1)
AGAIN = ("sent by a host that was declared dead", "sent by a host that is silent")


class Steered(Asked):
    """One run of a dump and its situation."""

    def effects(self) -> list[str]:
        ours = [each for each in OUTSIDE.effects if each.run == str(self.id)]
        return [f"{each.tool} {json.loads(each.body)['name']}" for each in ours]

    def wanted(self) -> list[str]:
        """What it does, each once; where both said that it hadn't happened, it was sent again on their word."""
        if self.name == "cancelled at its cap":
            return [f"reserve {self.name}", f"free {self.name} (reserve:{self.name})"]
        tools = [*WHAT[CASES[self.name].what], *(["post"] if self.name in AGAIN else [])]
        item = "thought" if CASES[self.name].what == "think" else self.name
        return [f"{each} {item}" + (f" (reserve:{item})" if each == "free" else "") for each in tools]


Named = dict[str, Steered]


def remembered_steered(dump: Path) -> list[Steered]:
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    return [Steered(name, UUID(run_id)) for name, run_id in told.get("steered", {}).items()]


def is_as_it_was_steered(runs: list[Steered]) -> None:
    assert {each.name for each in runs} == {*CASES}
    a.TOLD_OF.add("the other side is to be asked")  # what it says from now on, whenever it is asked
    assert all(row.is_genuine for row in Batch.objects.all()) and Batch.objects.filter(ended_at=None).count() == 2
    for each in runs:
        if each.name in ENDED:
            assert each.effects() == each.wanted(), each.name
        assert verify(each.id).problems == [], each.name


def bring_steered_to_their_ends(stage: Stage, runs: list[Steered]) -> None:
    named = {each.name: each for each in runs}
    for story in (of_many, of_two, of_time, of_what_was_handed, of_lost_workers, of_undo):
        story(stage, named)
    assert [each.name for each in runs if each.run.ended_at is None] == []


def drive(stage: Stage) -> None:
    """Whatever is ready and under no halt."""
    Run.objects.filter(ready_at__lt=NEVER).update(ready_at=now())
    while stage.drive() != "idle":
        pass


def _settled(each: Steered, said: dict[str, Any] = HAPPENED, *, by: tuple[str, ...] = ("ann", "ben")) -> None:
    """By those who say so, one after the other; and by one alone not."""
    for n, name in enumerate(by):
        found = reconciling.reconcile(each.id, **said, justification=WHY, by=actor(name))
        assert (found is None) is (n == len(by) - 1), each.name


def _ends(stage: Stage, each: Steered) -> None:
    drive(stage)
    assert str(each.run.state) == CASES[each.name].ends and each.effects() == each.wanted(), each.name


def of_many(stage: Stage, runs: Named) -> None:
    """What was begun on some of them is done on the rest, each once, and is over then."""
    paused, said = [[runs[name] for name in names] for names in (PAUSED_TOGETHER, SAID_TOGETHER)]
    assert [str(each.run.state) == "paused" for each in paused].count(True) == 2
    assert [len(events(each.run, e.OutcomeProposed)) for each in said] == [0, 0]
    while working.work(60):
        pass
    assert not Batch.objects.filter(ended_at=None).exists()
    for each in paused:
        assert str(each.run.state) == "paused" and len(events(each.run, e.RunPaused)) == 1
        lifecycle.resume(each.id, by=OLGA, justification=WHY)
        signals.signal(each.id, "go", SIGNAL, by=SHOP)
    for each in said:
        assert len(events(each.run, e.OutcomeProposed)) == 1
        _settled(each, by=("ben",))
    for each in (*paused, *said):
        _ends(stage, each)


def of_two(stage: Stage, runs: Named) -> None:
    """Whoever has said it then says nothing new; a second person who says the same settles it."""
    first, heard = runs["one word on it"], runs["one word on it after the other side was asked"]
    with pytest.raises(AlreadySaid):
        reconciling.reconcile(first.id, **HAPPENED, justification=WHY, by=actor("ann"))
    _settled(first, by=("ben",))
    assert [told.payload["proposal"] for told in events(first.run, e.ToolReconciled)] == [0]
    assert [told.answer for told in events(heard.run, e.UpstreamTold)] == ["nothing"]
    _settled(heard, by=("ann",))
    asked = runs["the other side is to be asked"]
    drive(stage)
    assert [told.answer for told in events(asked.run, e.UpstreamTold)] == ["happened"]
    assert [w.kind for w in waiting(asked.run)] == ["reconcile"] and len(asked.effects()) == 1
    _settled(asked)
    for each in (first, heard, asked):
        _ends(stage, each)


def of_time(stage: Stage, runs: Named) -> None:
    """What stood still is given back, and what stands goes on when its halt is lifted."""
    held, failed = runs["halted by a calendar"], runs["failed while it asked"]
    lifecycle.retry(failed.id, by=OLGA, justification=WHY)
    drive(stage)
    lift(Halt.objects.get(key="upgrade-still", n=0))
    everybody_goes_on()
    sweep()
    for name in STOOD:
        each = runs[name]
        assert verify(each.id).problems == [] and each.effects() == [], name
        stood = _given_back(each.question)
        assert stood > timedelta() and (stood > MINUTE) is (each in (held, failed)), (name, stood)
        approve(each.question)
        _ends(stage, each)


def _given_back(question: Approval) -> timedelta:
    """How much later its time is over than was said when it was put."""
    wait = Wait.objects.get(pk=question.wait_id)
    course = read(question, wait).course
    return runs_out(course, wait, now()) - course.deadline


def of_what_was_handed(stage: Stage, runs: Named) -> None:
    signals.signal(runs["handed a note, and waiting"].id, "go", SIGNAL, by=SHOP)
    approve(runs["handed words, and asking"].question)
    for name in ("handed a note, and waiting", "handed words, and asking", "retried with a note"):
        _ends(stage, runs[name])


def of_lost_workers(stage: Stage, runs: Named) -> None:
    """Deaths of then count, once more stops it; what is out on a host that is gone is sent again on two people's word
    alone."""
    ended = runs["given back to the pool"]
    assert ended.effects() == ended.wanted() and len(events(ended.run, e.RunRequeued)) == 1
    nine, often = runs["died nine times"], runs["died too often"]
    assert len(events(nine.run, e.WorkerLost)) == 9 and str(nine.run.state) == "completed"
    assert [w.kind for w in waiting(often.run)] == ["operator"] and often.effects() == []
    lifecycle.retry(often.id, by=OLGA, justification=WHY)
    _ends(stage, often)
    with pytest.raises(Forbidden):
        hosts.declare_dead(SILENT, by=actor("otto"), justification=WHY)
    assert hosts.declare_dead(SILENT, by=OLGA, justification=WHY) == 1
    assert failover.watch_with(None, is_thorough=True) == 1  # of hosts that nobody spoke of it frees none here
    drive(stage)
    for name in AGAIN:
        assert [w.kind for w in waiting(runs[name].run)] == ["reconcile"], name
        _settled(runs[name], DID_NOT)
        _ends(stage, runs[name])


def of_undo(stage: Stage, runs: Named) -> None:
    """A cancel withdrew what was asked; what was being undone is undone once, whoever died on the way."""
    capped, held = runs["at its cap"], runs["held in the midst of undoing"]
    assert [w.kind for w in waiting(capped.run)] == ["budget"]
    set_budget(capped.id, Budget(tool_calls=20), by=OLGA, justification=WHY)
    owner = held.run.owner
    assert owner is not None and failover.worker_died(owner, "its host is gone") >= 1
    for each in (capped, runs["cancelled at its cap"], held):
        _ends(stage, each)
    assert len(events(held.run, e.EffectUndone)) == 1


def one_is_enough_again() -> None:
    """Two people say so, as two did what they say no longer."""
    with pytest.raises(Proposed):
        guards.require(GuardsBody(families=[], justification=WHY), by=signed_in("head"))
    changes.apply(RuleChange.objects.get(state="open").pk, by=signed_in("hugo"), justification=WHY)


def steered_well(each: Steered) -> None:
    """How it ended, what it did to the outside, and what its record says."""
    run, case = each.run, CASES[each.name]
    assert str(run.state) == case.ends and each.effects() == each.wanted(), each.name
    assert verify(run.pk).problems == [], each.name
    if case.ends == "completed":
        note = "a note" if "note" in each.name else "nothing"
        seen = {
            "wait": [SIGNAL], "think": ["told 1 times"],
            "post": ["seen there"] if each.name not in AGAIN else [f"post:{each.name}"],
        }.get(case.what, [f"{tool}:{each.name}" for tool in WHAT[case.what]])  # fmt: skip
        assert output(run) == [note, *seen], each.name
