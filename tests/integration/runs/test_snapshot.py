"""Folding the journal gives the rows after every step of any run (each action: test_steering)."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from approvals.services import AlreadyDecided
from durableagents import BusinessFailure, Context, End, NotSent, TransportError
from ledger.errors import IllegalTransition, InvalidInput
from runs.models import Process, Run, Wait
from runs.services import callbacks
from runs.services.messages import sending
from runs.workers import failover, timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, fresh, now, output, waiting
from tests.integration.runs.test_steering import check_form
from tests.tiers import many
from tests.world import SHOP, Item, Notes, Outside, Toolbox, agent_of


def wanderer(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Context) -> str | End:
        n = len(state.seen)
        got: list[Any] = [str(await ctx.uuid())]
        for name in ("look", "order", "mail", "ask"):
            try:
                got.append((await ctx.call(getattr(tools, name), Item(name=f"{name} {n}"))).ref)
            except Exception as failure:
                got.append(type(failure).__name__)
        try:
            got.append((await ctx.call(tools.wire, Item(name=f"wire {n}", amount=5000))).ref)
        except Exception as failure:
            got.append(type(failure).__name__)
        await ctx.sleep(3600)
        state.seen.append(got)
        return End(state.seen) if len(state.seen) == 3 else "node"

    agent = agent_of(node, tools=tools.all())

    @agent.message(takes=Item)
    def note(state: Notes, request: Item) -> None:
        state.asked.text += request.name

    return agent


class Walk:
    """Random actions on one run, checked after each; a seed repeats them."""

    def __init__(self, stage: Stage, tools: Toolbox, outside: Outside, seed: int) -> None:
        self.stage, self.outside, self.random = stage, outside, random.Random(seed)
        self.told: list[str] = []
        self.run = stage.start(wanderer(tools))
        stage.at = self._die
        self.may_die = False

    def _die(self, point: str, tool: str) -> None:
        if self.may_die and self.random.random() < 0.15:
            self.may_die = False
            self.stage.kill_at = [(point, tool)]

    def step(self) -> None:
        act_ = self.random.choice(self.acts())
        self.told.append(act_.__name__)
        try:
            act_()
        except (IllegalTransition, AlreadyDecided, InvalidInput):
            self.told[-1] += " (refused)"
        check_form(self.run)
        check_against_journal(self.run)

    def acts(self) -> list[Callable[[], Any]]:
        people = [self.pause, self.resume, self.cancel, self.retry, self.settle, self.decide]
        return [
            self.drive,
            self.drive,
            self.drive,
            self.time,
            self.time,
            self.upstream,
            self.upstream,
            self.trouble,
            self.say,
            *people,
        ]

    def drive(self) -> None:
        Run.objects.filter(pk=self.run.pk, ready_at__isnull=False).update(ready_at=now())
        self.may_die = True
        if self.stage.drive() == "killed":
            check_against_journal(self.run)
            failover.worker_died(self.stage.worker.id, "so the story goes")
            Process.objects.update(ended_at=None)

    def time(self) -> None:
        Wait.objects.filter(run=self.run, kind="timer", resolved_at=None).update(deadline=now() - timedelta(seconds=1))
        timers.sweep()

    def upstream(self) -> None:
        for wait in waiting(self.run):
            if wait.kind == "webhook" and wait.slot in self.outside.urls:
                token = self.outside.urls[wait.slot].rsplit("/", 1)[1]
                callbacks.receive_callback(token, {"ref": f"answer to {wait.slot}"})

    def say(self) -> None:
        sending.send(self.run.id, "note", {"name": "x"}, by=SHOP, sender_id=self.random.choice([None, "1", "2"]))

    def trouble(self) -> None:
        name = self.random.choice(["look", "order", "mail", "ask", "wire"])
        error = self.random.choice([NotSent("refused"), TransportError("cut"), BusinessFailure("no"), KeyError("bug")])
        when: Any = "before" if isinstance(error, NotSent) else self.random.choice(["before", "after"])
        self.outside.trouble(name, error, when=when)

    def pause(self) -> None:
        act("pause", self.run)

    def resume(self) -> None:
        act("resume", self.run)

    def cancel(self) -> None:
        if self.random.random() < 0.15:
            act("cancel", self.run)

    def retry(self) -> None:
        act("retry", self.run)

    def settle(self) -> None:
        act(self.random.choice(["happened", "happened", "did_not", "fail"]), self.run)

    def decide(self) -> None:
        if self.run.approvals.filter(state="open").exists():
            self.stage.decide(self.run, self.random.choice(["approve", "approve", "reject"]))

    def finish(self) -> None:
        self.outside.troubles.clear()
        for _ in range(80):
            state = str(fresh(self.run).state)
            if state in ("completed", "cancelled"):
                return
            self.told.append(f"finish: {state}")
            if state == "paused":
                self.resume()
            elif state == "failed" or any(w.kind == "operator" for w in waiting(self.run)):
                self.retry()
            elif any(w.kind == "reconcile" for w in waiting(self.run)):
                act("happened", self.run)
            self.decide_yes()
            self.upstream()
            self.time()
            self.may_die = False
            Run.objects.filter(pk=self.run.pk, ready_at__isnull=False).update(ready_at=now())
            self.stage.drive()
            check_against_journal(self.run)
        raise AssertionError(f"it never ends: {self.told}")

    def decide_yes(self) -> None:
        if self.run.approvals.filter(state="open").exists():
            self.stage.decide(self.run)


@pytest.mark.parametrize("seed", range(many(12, 2)))
def test_rows_follow_the_journal_whatever_happens(stage: Stage, tools: Toolbox, outside: Outside, seed: int) -> None:
    walk = Walk(stage, tools, outside, seed)
    for _ in range(45):
        try:
            walk.step()
        except AssertionError as error:
            raise AssertionError(f"after {walk.told}") from error
    walk.finish()
    for name in ("order", "mail", "wire"):
        sent = [r for r in outside.seen(name) if r.executed]
        assert len({(r.slot, r.attempt) for r in sent}) == len(sent), f"{name}: each attempt had at most one effect"
    if str(fresh(walk.run).state) == "completed":
        assert len(output(walk.run)) == 3
