"""A state machine of a family of runs: workers crash, people move, fork, cancel and undo; a model knows the effects."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from durableagents import Agent, BusinessFailure, Context, End, Failure
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migration_requests import MigrateBody
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from ledger.models import LedgerEntry
from runs.models import ENDED, Process, Run
from runs.services import lifecycle, questions, signals
from runs.services.families import wishes
from runs.workers import failover, timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, dump, events, fresh, head, now, output, problems, waiting
from tests.unit.engine.undoings import Reversible
from tests.world import OLGA, SHOP, Asked, Notes, Outside, agent_of

WHY = "the model says so"
VERSIONS = ("1.0.0", "2.0.0")
VISITS = {"first": 1, "below": 2, "second": 2, "third": 3}  # the parent's visit that makes each effect
POINTS = [(point, tool) for point in ("CP1", "CP2", "CP4", "CP6") for tool in ("book", "unbook")]
POINTS += [("CP7", ""), ("CP8", "")]


def kin(tools: Reversible, version: str) -> Agent:
    """Return a parent that books, starts a child that books, books again, and waits for its ending."""

    async def work(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "below"})
        if state.asked.text == "wait":
            await ctx.signal("go")
        return End({})

    child = agent_of(work, name="kin-child", version=version, tools=tools.all())

    async def begin(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.book, {"name": "first"})
        return "middle"

    async def middle(state: Notes, ctx: Context) -> str:
        await ctx.child(f"{child.name}@{VERSIONS[0]}", Asked(text=state.asked.text))
        await ctx.call(tools.book, {"name": "second"})
        if (await ctx.signal("go"))["end"] == "badly":
            raise Failure("it was to fail", code="no_luck")
        return "last"

    async def last(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "third"})
        return End(version)

    return agent_of(begin, middle, last, name="kin-parent", version=version, tools=tools.all())


def acted(run: Run, since: datetime | None = None) -> bool:
    facts, children = LedgerEntry.objects.filter(run_id=run.pk), Run.objects.filter(parent=run.pk)
    if since is not None:
        facts, children = facts.filter(at__gte=since), children.filter(created_at__gte=since)
    return facts.exists() or children.exists()


class Family(RuleBasedStateMachine):
    """No worker holds a run between two rules: one that died is replaced."""

    run: Run

    def __init__(self, stage: Stage, outside: Outside) -> None:
        super().__init__()
        outside.__init__()  # type: ignore[misc]
        self.stage, self.outside = stage, outside
        tools = Reversible(outside)
        self.agent, _ = (kin(tools, version) for version in VERSIONS)
        self.wishes: dict[Any, str] = {}  # people's choice about the effects of a run they cancelled
        self.versions: dict[Any, str] = {}  # of migrated runs
        self.forks: list[Any] = []
        self.earlier = set(Run.objects.values_list("pk", flat=True))
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now() + timedelta(days=1))
        self.left = 0  # failed undos whose effects a person left

    def teardown(self) -> None:
        self.bring_to_an_end()

    @initialize(text=st.sampled_from(["wait", "wait", "quick"]), is_refused=st.booleans(), times=st.integers(0, 4))
    def start(self, text: str, is_refused: bool, times: int) -> None:
        self.run = self.stage.start(self.agent, text=text)
        self.work(times)
        if is_refused and times % 2:
            self.outside.trouble("unbook", BusinessFailure("too late", code="late"))

    # --- workers, and the sweeper

    @rule(times=st.integers(1, 4))
    def work(self, times: int) -> None:
        for _ in range(times):
            assert self.stage.drive() != "killed"

    @rule(at=st.sampled_from(POINTS))
    def die(self, at: tuple[str, str]) -> None:
        self.stage.kill_at = [at]
        if self.stage.drive() == "killed":
            failover.worker_died(self.stage.worker.id, "the model says so")
            Process.objects.update(ended_at=None)
            Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
        self.stage.kill_at = []

    @rule()
    def sweep(self) -> None:
        timers.tell_parents()
        wishes.align()

    # --- people

    @rule(end=st.sampled_from(["", "", "", "well", "badly", "badly"]))
    def signal(self, end: str) -> None:
        """Seldom signal: waiting runs can be moved, forked and cancelled meanwhile."""
        if not end:
            return
        for run in self._at_work():
            if any(wait.kind == "signal" for wait in waiting(run)):
                signals.signal(run.pk, "go", {"end": end}, by=SHOP)

    @precondition(lambda self: self.done())
    @rule(data=st.data(), effects=st.sampled_from(["undo", "undo", "leave"]), is_parent=st.booleans())
    def cancel(self, data: st.DataObject, effects: str, is_parent: bool) -> None:
        self._cancel(fresh(self.run) if is_parent else self._one_of(data), effects)

    @precondition(lambda self: self._has_child_at_work())
    @rule()
    def undo_above_a_child_at_work(self) -> None:
        """Cancel at a moment that chance alone seldom hits."""
        self._cancel(fresh(self.run), "undo")

    def _has_child_at_work(self) -> bool:
        is_at_work = self._at_work().filter(parent=self.run.pk).exists()
        return is_at_work and self.done()[-1:] == ["book below"]

    def _cancel(self, run: Run, effects: str) -> None:
        is_legal = not (run.state in ENDED or run.is_undoing or head(run).is_cancel_requested)
        act = partial(lifecycle.cancel, run.pk, by=OLGA, justification=WHY, effects=effects)
        self._is_done(act, is_legal, IllegalTransition)
        if is_legal:
            self.wishes[run.pk] = effects

    @rule(data=st.data(), what=st.sampled_from(["pause", "resume"]))
    def steer(self, data: st.DataObject, what: str) -> None:
        run = self._one_of(data)
        is_paused = str(run.state) == "paused"
        is_free = run.state not in ENDED and not is_paused and not head(run).is_cancel_requested
        act = partial(getattr(lifecycle, what), run.pk, by=OLGA, justification=WHY)
        may_resume = is_paused and not self._is_beside(run)
        self._is_done(act, is_free if what == "pause" else may_resume, IllegalTransition)

    def _is_beside(self, run: Run) -> bool:
        """Return whether a competing run is active or has effects unknown to this one.

        All forks here are of the first run; a child's work is its parent's; a run that undoes does none.
        """
        if run.is_undoing and run.state not in ENDED:
            return False
        of = fresh(self.run) if run.parent == self.run.pk else Run.objects.filter(pk=run.parent).first() or run
        others = [x for x in (fresh(self.run), *Run.objects.filter(pk__in=self.forks)) if x != of]
        if of.pk == self.run.pk:
            return any(x.state not in ENDED or acted(x) for x in others)
        (found,) = events(of, e.RunForked)
        return not found.fences_all and any(x.state not in ENDED or acted(x, of.created_at) for x in others)

    @rule(data=st.data(), after=st.integers(0, 2))
    def move(self, data: st.DataObject, after: int) -> None:
        """Migrate to the twin version with the same calls: it continues in its middle, or the refusal says why."""
        self.work(after)
        run = self._one_of(data)
        to = VERSIONS[run.version == VERSIONS[0]]
        nodes = {name: name for name in (["work"] if run.parent else ["begin", "middle", "last"])}
        fields = {"from_version": run.version, "to_version": to, "nodes": nodes, "runs": [run.pk], "justification": WHY}
        before, no = dump(), self._in_the_way(run)
        (did,) = migrating.migrate(run.agent, MigrateBody.model_validate(fields), by=OLGA)
        assert (did.code, did.is_moved) == (no, not no), (did, no)
        if no:
            assert dump() == before, "what is refused changes nothing"
            return
        is_between = run.fork_how == "fork" and run.visit == 0
        assert did.how == ("unbegun" if not run.visit and not is_between else "reentered" if is_between else "replayed")
        self.versions[run.pk] = to

    def _in_the_way(self, run: Run) -> str:
        facts = list(LedgerEntry.objects.filter(run_id=run.pk).order_by("id").values_list("slot", "fact"))
        known = {slot for slot, fact in facts if fact != "pending"}
        for is_so, name in (
            (run.state in ENDED, "ended"),
            (run.is_undoing, "undoing"),
            (head(run).is_cancel_requested, "cancelled"),
            ({slot for slot, _ in facts} != known, "in_doubt"),
        ):
            if is_so:
                return name
        return ""

    @precondition(lambda self: len(self.forks) < 2)
    @rule(visit=st.integers(1, 3))
    def fork(self, visit: int) -> None:
        run = fresh(self.run)
        act = partial(forking.fork, run.pk, ForkRequest(visit), by=OLGA, justification=WHY)
        entered = {x.visit for x in events(run, e.VisitEntered) if x.node != "_undo"}
        is_gone = any(VISITS[name] < visit for name in self.undone())  # which it would need
        is_legal = visit in entered and not is_gone and not (run.is_undoing and run.state not in ENDED)
        made = self._is_done(act, is_legal, InvalidInput)
        if made is not None:
            self.forks.append(made.pk)
            self.versions[made.pk] = run.version

    @rule()
    def answer(self) -> None:
        """Let forks repeat nothing; leave the effect of the first refused undo, and retry later ones."""
        for run in self._at_work():
            for wait in waiting(run):
                if wait.kind != "input":
                    continue
                decision = "no" if run.pk in self.forks else "retry" if self.left else "leave"
                self.left += decision == "leave"
                fields = {"decision": decision} | ({} if decision == "no" else {"justification": WHY})
                questions.answer(run.pk, wait.pk, fields, by=OLGA, justification=WHY)

    # --- the results ---

    def bring_to_an_end(self) -> None:
        for _ in range(40):
            left = list(self._at_work())
            if not left:
                break
            for run in left:
                if str(fresh(run).state) != "paused":  # its parent's resume may have been its own
                    continue
                if self._is_beside(run):
                    self._cancel(fresh(run), "leave")
                else:
                    lifecycle.resume(run.pk, by=OLGA, justification=WHY)
            self.work(4)
            self.sweep()
            self.answer()
            self.signal("well")
        assert not list(self._at_work()), [(str(r.state), [w.kind for w in waiting(r)]) for r in self._at_work()]
        self.nothing_is_done_twice()
        self.each_effect_is_where_it_should_be(fresh(self.run))
        for run in self._runs():
            check_against_journal(run)
            assert problems(run) == []
            assert run.version == self.versions.get(run.pk, VERSIONS[0])

    def nothing_is_done_twice(self) -> None:
        done = self.done()
        assert len({*done}) == len(done), done
        assert {f"book {name}" for name in self.undone()} <= {*done}

    def each_effect_is_where_it_should_be(self, run: Run) -> None:
        done, state = self.done(), str(run.state)
        child = Run.objects.filter(parent=run.pk).first()
        booked = [what.removeprefix("book ") for what in done if what.startswith("book")]
        undone = self.undone()
        own = [name for name in booked if name != "below"]
        is_undone = state == "failed" or (state == "cancelled" and self.wishes.get(run.pk) == "undo")
        gone = {*own} if is_undone else set()
        if child is not None and "below" in booked:
            theirs = self.wishes.get(child.pk)
            gone |= {"below"} if theirs == "undo" or (theirs is None and is_undone) else set()
        items = gone - {*undone}
        assert {*undone} <= gone and len(items) <= self.left, (state, self.wishes, done)
        ours = [name for name in undone if name in own]
        assert ours == sorted(ours, key=own.index, reverse=True), "the last first"
        if state == "completed":
            assert own == ["first", "second", "third"] and output(run) == run.version

    def done(self) -> list[str]:
        return [f"{r.tool} {json.loads(r.body)['name']}" for r in self.outside.requests if r.executed]

    def undone(self) -> list[str]:
        return [what.partition(":")[2] for what in self.done() if what.startswith("unbook")]

    # ---

    def _one_of(self, data: st.DataObject) -> Run:
        return data.draw(st.sampled_from(list(self._runs())))

    def _is_done(self, act: Any, is_legal: bool, error: type[Exception]) -> Any:
        if is_legal:
            return act()
        before = dump()
        with pytest.raises(error):
            act()
        assert dump() == before, "what is refused changes nothing"
        return None

    def _runs(self) -> Any:
        return Run.objects.exclude(pk__in=self.earlier).order_by("created_at", "id")

    def _at_work(self) -> Any:
        return self._runs().filter(ended_at=None)
