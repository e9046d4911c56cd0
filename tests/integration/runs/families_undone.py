"""Families of runs with effects that can be undone."""

from __future__ import annotations

from durableagents import Agent, Context, End, Failure
from runs.models import Process, Run
from runs.services import questions
from runs.services.families import wishes
from runs.workers import failover, timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, now, problems, waiting
from tests.unit.engine.undoings import Reversible
from tests.world import OLGA, Asked, Notes, agent_of


def everything(stage: Stage, most: int = 80) -> None:
    """Drive workers and the sweeper until nothing is left; dead workers are replaced."""
    for _ in range(most):
        how = stage.drive()
        if how == "killed":
            failover.worker_died(stage.worker.id, "the test says so")
            Process.objects.update(ended_at=None)
            Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
        elif how == "idle" and not timers.tell_parents() and not wishes.align():
            return
    raise AssertionError("it goes round in circles")


def family(tools: Reversible, *texts: str, fails: bool = True) -> Agent:
    async def work(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": state.asked.text})
        if state.asked.text == "fail":
            raise Failure("it was to fail", code="no_luck")
        if state.asked.text == "wait":
            await ctx.signal("go")
        return End({"done": True})

    helper = agent_of(work, name="helper", tools=tools.all())

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.post, {"name": "own"})
        await ctx.gather(*(ctx.child(helper, Asked(text=text)) for text in texts), return_exceptions=True)
        if fails:
            raise Failure("the parent", code="parent")
        await ctx.signal("go")
        return End({})

    return agent_of(node, name="parent", tools=tools.all())


def sound(run: Run) -> None:
    check_against_journal(run)
    assert problems(run) == []


def all_sound() -> None:
    for each in Run.objects.all():
        sound(each)


def answer(run: Run, decision: str) -> None:
    (question,) = [w for w in waiting(run) if w.kind == "input"]
    fields = {"decision": decision, "justification": "seen to by hand"}
    questions.answer(run.id, question.id, fields, by=OLGA)
