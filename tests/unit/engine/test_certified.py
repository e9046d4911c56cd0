from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from durableagents import (
    Context,
    DidNotHappen,
    End,
    Happened,
    NotSent,
    ReplayClass,
    ToolCall,
    TransportError,
    tool,
)
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.certification import NOT_PROBED, Certificates, Policy, ProbeVerdict
from runs.engine.runtime import RetryPolicy, Runtime
from runs.engine.tools import Tool
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.unit.engine.test_key_ttl import TTL, forgetful
from tests.world import AT_ONCE, IN_PLACE, Done, Item, Notes, Outside, Toolbox, agent_of

GOOD = ProbeVerdict("certified", "certified")
BAD = [
    ProbeVerdict("ignores_keys", "ignores_keys"),
    ProbeVerdict("refuses_repeats", "refuses_repeats"),
    ProbeVerdict("expired", "ignores_keys"),
    ProbeVerdict("changed", "ignores_keys"),
]
OPEN = [
    NOT_PROBED,
    ProbeVerdict("expired", "certified"),
    ProbeVerdict("changed", "certified"),
    ProbeVerdict("unclear", "unclear"),
    ProbeVerdict("hook_denies", "hook_denies"),
]


class Known(Certificates):
    """A fixed probe result; `late` is what only a fresh look sees."""

    def __init__(
        self, policy: Policy = "allow", standing: ProbeVerdict = NOT_PROBED, late: ProbeVerdict | None = None
    ) -> None:
        self.policy, self.is_known, self.late = policy, standing, late
        self.asked: list[tuple[str, str, bool]] = []

    async def standing(self, agent: str, tool: Tool, *, is_fresh: bool = False) -> ProbeVerdict:
        self.asked.append((agent, tool.name, is_fresh))
        return self.late if is_fresh and self.late is not None else self.is_known


@dataclass
class Certified(Story):
    known: Known = field(default_factory=Known)

    @property
    def runtime(self) -> Runtime:
        return replace(super().runtime, certificates=self.known)


def one_call(tools: Toolbox, name: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(getattr(tools, name), Item(name="a"))).ref)

    return agent_of(node, tools=tools.all())


@pytest.mark.parametrize("standing", [*OPEN, *BAD])
async def test_uncertified_tool_stops_for_an_operator(tools: Toolbox, outside: Outside, standing: ProbeVerdict) -> None:
    story = Certified(one_call(tools, "order"), known=Known("refuse", standing))
    assert await story.settle() == "operator"
    (stop,) = story.events(e.OperatorNeeded)
    assert stop.reason == "uncertified_tool" and stop.payload["tool"] == "order"
    assert stop.payload["standing"] == standing.word and "manage.py probe order" in stop.payload["fix"]
    assert story.events(e.ToolInvoked) == [] and outside.requests == [] and story.facts() == []


async def test_after_a_probe_the_run_goes_on_from_there(tools: Toolbox, outside: Outside) -> None:
    story = Certified(one_call(tools, "order"), known=Known("refuse"))
    assert await story.settle() == "operator"
    story.known.is_known = GOOD
    wait_id, _ = story.one_waiting("operator")
    story.run.resolve(wait_id, "retried")
    assert await story.settle() == "completed" and len(outside.executed("order")) == 1


async def test_a_probe_of_a_moment_ago_counts(tools: Toolbox) -> None:
    story = Certified(one_call(tools, "order"), known=Known("refuse", NOT_PROBED, late=GOOD))
    assert await story.settle() == "completed"


@each_case("name", ["look", "mail"])
async def test_only_keyed_tools_are_asked_about(tools: Toolbox, name: str) -> None:
    story = Certified(one_call(tools, name), known=Known("refuse"))
    assert await story.settle() == "completed" and story.known.asked == []


async def test_a_certified_tool_is_called_and_nothing_is_marked(tools: Toolbox) -> None:
    story = Certified(one_call(tools, "order"), known=Known("refuse", GOOD))
    assert await story.settle() == "completed"
    (invoked,) = story.events(e.ToolInvoked)
    assert "uncertified" not in invoked.payload and story.known.asked[0][2] is False


async def test_under_warn_the_run_says_so_and_goes_on(tools: Toolbox, caplog: pytest.LogCaptureFixture) -> None:
    story = Certified(one_call(tools, "order"), known=Known("warn", ProbeVerdict("expired", "certified")))
    assert await story.settle() == "completed"
    (invoked,) = story.events(e.ToolInvoked)
    assert invoked.payload["uncertified"] == "expired" and "not certified (expired)" in caplog.text


@pytest.mark.parametrize("policy", ["allow", "warn", "refuse"])
@pytest.mark.parametrize("standing", BAD)
@pytest.mark.parametrize("point", ["CP2", "CP4"])
async def test_what_ignores_keys_is_never_repeated_unasked_no_matter_who_dies(
    tools: Toolbox, outside: Outside, policy: Policy, standing: ProbeVerdict, point: str
) -> None:
    """It was found out, expired or not, after the call was begun."""
    story = Certified(one_call(tools, "order"), kill_at=[(point, "order")], known=Known(policy, GOOD, late=standing))
    assert await story.settle() == "parked"
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert "not trusted to honour keys" in unknown.payload["reason"]
    assert len(outside.requests) == (point == "CP4") and not story.events(e.ToolRedispatched)


async def test_an_answer_that_is_lost_is_asked_about_at_once(tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", TransportError("cut"), when="after")
    story = Certified(one_call(tools, "order"), retry=IN_PLACE, known=Known("allow", BAD[0]))
    assert await story.settle() == "parked" and len(outside.requests) == 1
    story.reconcile("happened", receipt={"ref": "seen"})
    assert await story.settle() == "completed" and story.output == "seen" and len(outside.requests) == 1


async def test_one_that_waits_to_be_repeated_is_looked_at_again(tools: Toolbox, outside: Outside) -> None:
    """It was trusted when its answer was lost, but no longer when the timer fires."""
    outside.trouble("order", TransportError("cut"), when="after")
    story = Certified(one_call(tools, "order"), retry=AT_ONCE, known=Known("allow", GOOD))
    assert await story.drive() == "parked"
    ((timer, _),) = story.waiting("timer")
    story.run.resolve(timer, "fired")
    story.known.is_known = BAD[0]
    assert await story.drive() == "parked" and len(outside.requests) == 1
    assert story.one_waiting("reconcile")


@pytest.mark.parametrize("retry", [IN_PLACE, AT_ONCE], ids=["in place", "after a timer"])
async def test_what_never_left_is_sent_all_the_same(tools: Toolbox, outside: Outside, retry: RetryPolicy) -> None:
    outside.trouble("order", NotSent("refused"), NotSent("refused"))
    story = Certified(one_call(tools, "order"), retry=retry, known=Known("allow", BAD[0]))
    assert await story.settle() == "completed" and len(outside.executed("order")) == 1


async def test_what_may_have_left_before_an_outage_is_a_persons(tools: Toolbox, outside: Outside) -> None:
    """Only the last try proves that it was not sent."""
    outside.trouble("order", TransportError("cut"), NotSent("refused"))
    story = Certified(one_call(tools, "order"), retry=AT_ONCE, known=Known("allow", GOOD, late=BAD[0]))
    assert await story.drive() == "parked"
    for wait_id, _ in story.waiting("timer"):
        story.run.resolve(wait_id, "fired")
    assert await story.settle() == "parked" and story.one_waiting("reconcile")
    assert story.events(e.ToolNotDispatched) == []


@pytest.mark.parametrize(("said", "how"), [(Happened(Done(ref="there")), "completed"), (DidNotHappen(), "parked")])
async def test_its_hook_is_asked_first(tools: Toolbox, outside: Outside, said: Any, how: str) -> None:
    outside.hook = lambda args, call: said
    story = Certified(one_call(tools, "hooked"), kill_at=[("CP2", "hooked")], known=Known("allow", BAD[0]))
    assert await story.settle() == how and len(outside.requests) == 0


async def test_a_trusted_denial_does_not_repeat_it_after_a_lost_answer(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: DidNotHappen()
    outside.trouble("hooked", TransportError("cut"), when="after")
    story = Certified(one_call(tools, "hooked"), retry=IN_PLACE, known=Known("allow", BAD[0]))
    assert await story.settle() == "parked" and len(outside.requests) == 1
    assert story.one_waiting("reconcile")


@pytest.mark.parametrize("standing", OPEN)
@pytest.mark.parametrize(("policy", "sent"), [("allow", 2), ("warn", 2), ("refuse", 1)])
async def test_where_certificates_are_asked_for_a_repeat_needs_one_too(
    tools: Toolbox, outside: Outside, standing: ProbeVerdict, policy: Policy, sent: int
) -> None:
    story = Certified(one_call(tools, "order"), kill_at=[("CP4", "order")], known=Known(policy, GOOD, late=standing))
    assert await story.settle() == ("completed" if sent == 2 else "parked")
    assert len(outside.requests) == sent and len(outside.executed("order")) == 1


DENIERS = [
    ProbeVerdict("hook_denies", "hook_denies"),
    ProbeVerdict("expired", "hook_denies"),
    ProbeVerdict("changed", "hook_denies"),
]


@pytest.mark.parametrize("standing", DENIERS)
@pytest.mark.parametrize("policy", ["allow", "warn"])
async def test_lying_hook_is_not_believed(
    tools: Toolbox, outside: Outside, policy: Policy, standing: ProbeVerdict
) -> None:
    """It happened, and the hook denies it: a person is asked and sees why."""
    outside.hook = lambda args, call: DidNotHappen()
    known = Known(policy, GOOD, late=standing)
    story = Certified(one_call(tools, "hooked"), kill_at=[("CP4", "hooked")], known=known)
    assert await story.settle() == "parked"
    (unknown,) = story.events(e.ToolOutcomeUnknown)
    assert "saw it miss one" in unknown.payload["reason"] and len(outside.requests) == 1
    story.reconcile("happened", receipt={"ref": "seen"})
    assert await story.settle() == "completed" and story.output == "seen" and len(outside.requests) == 1


async def test_what_such_a_hook_finds_is_believed(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: Happened(Done(ref="there"))
    story = Certified(one_call(tools, "hooked"), kill_at=[("CP4", "hooked")], known=Known("allow", DENIERS[0]))
    assert await story.settle() == "completed" and story.output == "there" and len(outside.requests) == 1


async def test_its_denial_gives_a_key_no_new_time(outside: Outside) -> None:
    """The key has expired, so only the hook could let the call be resent."""
    outside.hook = lambda args, call: DidNotHappen()
    order = forgetful(outside, has_hook=True)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(order, Item(name="a"))).ref)

    agent = agent_of(node, tools=[order])
    for status, how in ((NOT_PROBED, "completed"), (DENIERS[0], "parked")):
        story = Certified(agent, kill_at=[("CP2", "order")], known=Known("allow", status))
        await story.drive()
        story.run.skew = 2 * TTL
        assert await story.drive() == how
    assert "saw it miss one" in story.events(e.ToolOutcomeUnknown)[0].payload["reason"]


async def test_distrusted_denial_sends_no_unsafe_call_again(tools: Toolbox, outside: Outside) -> None:
    outside.hook = lambda args, call: DidNotHappen()
    outside.trouble("hooked_mail", TransportError("cut"), when="after")
    story = Certified(one_call(tools, "hooked_mail"), retry=IN_PLACE, known=Known("allow", DENIERS[2]))
    assert await story.settle() == "parked" and len(outside.requests) == 1


async def test_a_denial_counts_for_nothing_while_an_earlier_try_may_still_be_sending() -> None:
    """The tool was trusted when its first try timed out, and no longer after the second."""
    over, sent, known = threading.Event(), [], Known("allow", GOOD)

    async def no(args: Item, call: ToolCall) -> DidNotHappen:
        return DidNotHappen()

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, reconcile=no, timeout=0.05)
    def order(args: Item, call: ToolCall) -> Done:
        """Order, blocking."""
        sent.append(call.key)
        if len(sent) == 1:
            over.wait(10)
        known.is_known = BAD[0]
        raise TransportError("no answer")

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(order, Item(name="a"))).ref)

    story = Certified(agent_of(node, tools=[order]), retry=IN_PLACE, known=known)
    try:
        assert await story.drive() == "parked" and len(sent) <= 2
    finally:
        over.set()
    assert story.events(e.ToolOutcomeUnknown)[0].is_sender_done is False


@pytest.mark.parametrize(("standing", "how"), [(NOT_PROBED, "cancelled"), (DENIERS[0], "parked")])
async def test_distrusted_denial_ends_no_run(
    tools: Toolbox, outside: Outside, standing: ProbeVerdict, how: str
) -> None:
    outside.hook = lambda args, call: DidNotHappen()
    story = Certified(one_call(tools, "hooked"), kill_at=[("CP4", "hooked")], known=Known("allow", standing))
    assert await story.drive() == "killed"
    story.run.is_cancel_requested = True
    assert await story.drive() == how and len(outside.requests) == 1
    assert len(story.events(e.ToolOutcomeUnknown)) == (how == "parked")
