"""A limit or an open breaker delays runs and fails none: whole runs, and worker processes that share a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Assistant, Context, End, NotSent, ReplayClass, ToolCall, TransportError, tool
from durableagents.contrib.limits import services as acts
from durableagents.contrib.limits.models import Limit, Permit
from durableagents.contrib.limits.queries import get_limit
from runs.engine.assistants import ModelTurn
from runs.engine.errors import NotServed
from runs.engine.limits import Rule
from runs.models import Run, Wait
from runs.services import lifecycle
from runs.workers import timers
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, facts, fresh, kinds, now, problems, waiting
from tests.waiting import eventually
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
WHY = "the test says so"


def said(key: str, **rule: int) -> None:
    acts.set_limit(key, Rule(**rule), by=OLGA, justification=WHY)


def calls(tools: Toolbox, name: str) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(getattr(tools, name), Item(name=state.asked.text, amount=5000))).ref)

    return agent_of(node, tools=tools.all())


def is_over(*runs: Run) -> Callable[[], bool]:
    ids = [run.pk for run in runs]
    return lambda: Run.objects.filter(pk__in=ids, ended_at__isnull=False).count() == len(ids)


def ring_now() -> None:
    Wait.objects.filter(resolved_at__isnull=True, kind="timer").update(deadline=now() - timedelta(seconds=1))
    timers.sweep()


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["look", "order", "mail", "fax"])
def test_a_breaker_that_is_open_holds_a_call_before_its_intent_and_fails_nothing(
    stage: Stage, tools: Toolbox, outside: Outside, name: str
) -> None:
    acts.open_breaker(f"tool:{name}", by=OLGA, justification=WHY)
    run = stage.start(calls(tools, name), text="a")
    with working(stage):
        eventually(lambda: str(fresh(run).state) == "waiting_event")
        assert outside.seen(name) == [] and facts(run) == []
        assert "ToolInvoked" not in kinds(run), "nothing is on record that could be in doubt"
        (wait,) = waiting(run)
        assert (wait.kind, wait.detail["limit"], wait.detail["why"]) == ("timer", f"tool:{name}", "breaker")
        found = get_limit(f"tool:{name}")
        assert found.waiting == 1 and found.runs == [run.pk] and found.is_by_hand
        acts.close_breaker(f"tool:{name}", by=OLGA, justification=WHY)
        ring_now()
        eventually(is_over(run))
    assert str(fresh(run).state) == "completed" and len(outside.seen(name)) == 1
    assert problems(run) == []


def test_a_gated_call_waits_after_the_yes_and_uses_it_once(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    acts.open_breaker("tool:pay", by=OLGA, justification=WHY)
    run = stage.start(calls(tools, "pay"), text="a")
    with working(stage):
        eventually(lambda: str(fresh(run).state) == "waiting_human")
        stage.decide(run)
        eventually(lambda: str(fresh(run).state) == "waiting_event")
        assert Wait.objects.get(run=run, kind="approval").consumed_at is None, "the yes is not used up by waiting"
        acts.close_breaker("tool:pay", by=OLGA, justification=WHY)
        ring_now()
        eventually(is_over(run))
    assert len(outside.executed("pay")) == 1 and problems(run) == []


def test_a_call_of_unknown_outcome_waits_too_and_goes_out_under_the_same_key(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """The breaker's probe is an ordinary repeat: announced, with the same key and bytes."""
    said("tool:order", breaker=50, rest=300)
    outside.trouble("order", *[TransportError("away")] * 8, when="after")
    run = stage.start(calls(tools, "order"), text="a")
    with working(stage):
        eventually(lambda: Limit.objects.get(pk="tool:order").breaker == "open")
        eventually(lambda: str(fresh(run).state) == "waiting_event")
        sent = len(outside.seen("order"))
        assert 5 <= sent <= 8
        (wait,) = waiting(run)
        assert (wait.detail["limit"], wait.detail["why"]) == ("tool:order", "breaker")
        Limit.objects.update(rest_until=now())
        for _ in range(8):
            ring_now()
            Limit.objects.filter(breaker="open").update(rest_until=now())
            if Limit.objects.get(pk="tool:order").breaker == "closed":
                break
            eventually(lambda: str(fresh(run).state) in ("waiting_event", "completed"))
        ring_now()
        eventually(is_over(run))
    assert len(outside.executed("order")) == 1 and len({(r.key, r.body) for r in outside.seen("order")}) == 1
    assert str(fresh(run).state) == "completed" and problems(run) == []


def test_an_unknown_outcome_is_a_persons_also_where_the_breaker_opens_by_it(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    said("tool:mail", breaker=50, rest=1)
    outside.trouble("mail", *[TransportError("away")] * 5, when="after")
    agent = calls(tools, "mail")
    runs = [stage.start(agent, text=str(n)) for n in range(5)]
    with working(stage):
        eventually(lambda: Run.objects.filter(state="waiting_human").count() == 5)
        eventually(lambda: Limit.objects.get(pk="tool:mail").breaker == "open")
        Limit.objects.update(rest_until=now())
        probe = stage.start(agent, text="probe")
        eventually(is_over(probe))
        eventually(lambda: Limit.objects.get(pk="tool:mail").breaker == "closed")
    assert len(outside.seen("mail")) == 6, "none of the five was sent again"
    assert all(str(fresh(run).state) == "waiting_human" and problems(run) == [] for run in runs)


@pytest.mark.parametrize("when", ["open", "held"])
def test_where_one_model_may_not_be_asked_the_next_is_and_the_last_is_waited_for(
    stage: Stage, tools: Toolbox, when: str
) -> None:
    items: list[str] = []

    async def ask(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        items.append(model)
        raise NotServed("busy", retry_after=60.0) if when == "held" and model == "far:one" else NotServed("no")

    helper = Assistant("helper", instructions="x", output=Item, models=["far:one", "near:two"])

    async def node(state: Notes, ctx: Context) -> End:
        return End(str(await ctx.model(helper, "hello")))

    if when == "open":
        for key in ("provider:far", "model:near:two"):
            acts.open_breaker(key, by=OLGA, justification=WHY)
    else:
        Limit.objects.create(key="model:far:one", held_until=now() + timedelta(seconds=60))
        acts.open_breaker("provider:near", by=OLGA, justification=WHY)
    run = stage.start(agent_of(node, tools=[], assistants=[helper]))
    with working(stage):
        eventually(lambda: str(fresh(run).state) == "waiting_event")
        (wait,) = waiting(run)
    assert items == [] and "ModelRouted" not in kinds(run)
    assert wait.detail["limit"] in ("model:near:two", "provider:near") and wait.detail["tool"] == "model"
    assert problems(run) == []


def test_a_blocking_call_that_nobody_waits_for_any_more_holds_its_permit_until_it_ends(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    release, began = threading.Event(), threading.Event()

    @tool(replay_class=ReplayClass.PURE, timeout=0.3)
    def slow(args: Item, call: ToolCall) -> Item:
        began.set()
        release.wait(20)
        return args

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(slow, Item(name="a"))
        return End("done")

    said("tool:slow", at_once=1)
    run = stage.start(agent_of(node, tools=[slow]))
    with working(stage):
        assert began.wait(20)
        eventually(lambda: str(fresh(run).state) == "waiting_event")
        assert Permit.objects.count() == 1, "the thread may still be sending"
        release.set()
        eventually(lambda: not Permit.objects.exists())
        ring_now()
        eventually(is_over(run))
    assert problems(run) == []


def test_a_pause_and_a_cancel_end_the_wait_for_a_permit(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    said("tool:order", at_once=1)
    with working(stage):
        eventually(lambda: Limit.objects.filter(pk="tool:order").exists())
        Permit.objects.create(
            id=stage.worker.id,
            key="tool:order",
            worker=stage.hire().id,
            run_id=stage.worker.id,
            slot="",
            taken_at=now(),
            expires_at=now() + timedelta(hours=1),
        )
        agent = calls(tools, "order")
        paused, cancelled = stage.start(agent, text="a"), stage.start(agent, text="b")
        lifecycle.pause(paused.pk, by=OLGA, justification=WHY)
        lifecycle.cancel(cancelled.pk, by=OLGA, justification=WHY)
        eventually(lambda: str(fresh(paused).state) == "paused" and str(fresh(cancelled).state) == "cancelled")
    assert outside.seen("order") == [] and problems(paused) == problems(cancelled) == []


def test_what_is_not_sent_is_sent_once_though_the_breaker_opens_between(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    said("tool:mail", breaker=50, rest=300)
    outside.trouble("mail", *[NotSent("refused")] * 6)
    run = stage.start(calls(tools, "mail"), text="a")
    with working(stage):
        eventually(lambda: Limit.objects.get(pk="tool:mail").breaker == "open")
        eventually(lambda: str(fresh(run).state) == "waiting_event")
        acts.close_breaker("tool:mail", by=OLGA, justification=WHY)
        while not is_over(run)():
            ring_now()
            if Limit.objects.get(pk="tool:mail").breaker == "open":
                acts.close_breaker("tool:mail", by=OLGA, justification=WHY)
            eventually(lambda: is_over(run)() or str(fresh(run).state) == "waiting_event")
    assert len(outside.executed("mail")) == 1 and problems(run) == []
