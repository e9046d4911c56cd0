from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, ContentRefused, Context, End, Piece, Redact, Withhold, screen
from ledger import events as e
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.engine.journal import Batch
from runs.models import Process, Run
from runs.workers import failover
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, events, facts, kinds, now, output, problems
from tests.tampering import tamper
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of


@screen(version="1")
def guard(piece: Piece) -> Withhold | Redact | None:
    text = str(piece.content)
    if "poison" in text:
        return Withhold("poison")
    if piece.to == "tool" and "dirty" in text:
        return Redact(piece.content | {"name": "clean"}, "cleaned")
    return None


def acting(tools: Toolbox, *names: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        got: list[Any] = []
        for name in names:
            tool, _, item = name.partition(" ")
            try:
                got.append((await ctx.call(getattr(tools, tool), Item(name=item, amount=5000))).ref)
            except ContentRefused as no:
                got.append(no.reason)
        return End(got)

    return agent_of(node, tools=tools.all())


def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([ToolCallPart("final_result", {"ref": "x"})])


def thinking(prompt: str) -> Agent:
    assistant = Assistant(name="mind", instructions="Think.", output=Done, offline=say)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(assistant, prompt)).ref)

    return agent_of(node, assistants=[assistant])


def test_refused_and_replaced_calls_verify(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    stage.screens = (guard,)
    run = stage.start(acting(tools, "look poison", "order poison", "mail dirty", "pay dirty", "order fine"))
    assert stage.settle(run) == "parked"
    stage.decide(run)
    assert stage.settle(run) == "completed"
    assert output(run) == ["poison", "poison", "mail:clean", "pay:clean", "order:fine"]
    assert facts(run) == ["pending", "committed"] * 3
    assert [x.verdict for x in events(run, e.ContentWithheld)] == ["refused", "refused", "replaced", "replaced"]
    at = kinds(run).index("ToolInvoked")
    assert kinds(run)[at - 2 : at] == ["ContentScreened", "ContentWithheld"], "in one commit with the intent"
    assert problems(run) == []
    check_against_journal(run)


def test_a_refused_prompt_ends_the_run_by_name_and_costs_nothing(stage: Stage) -> None:
    stage.screens = (guard,)
    run = stage.start(thinking("poison"))
    assert stage.settle(run) == "failed"
    assert events(run, e.RunFailed)[0].code == "content_refused"
    assert kinds(run)[-5:] == ["ModelRequested", "ContentScreened", "ContentWithheld", "ModelFailed", "RunFailed"]
    assert problems(run) == []
    check_against_journal(run)


def screened(to: str = "tool x", refused: int = 0, replaced: int = 0, **more: Any) -> e.Event:
    return e.ContentScreened(
        slot="0.1/9", n=0, to=to, hooks=["guard@1"], pieces=1, refused=refused, replaced=replaced, **more
    )


def withheld(**more: Any) -> e.Event:
    given = {"place": "arguments", "source": "node node", "to": "tool x", "verdict": "replaced", "hook": "guard"} | more
    return e.ContentWithheld(slot="0.1/9", n=0, version="1", digest="", size=1, reason="x", **given)


FORGED: dict[str, tuple[list[e.Event], str]] = {
    "a verdict of no look": ([withheld(place="0", source="tool look", to="model mind")], "belongs to no screening"),
    "a hook that was not asked": ([screened(replaced=1), withheld(hook="other")], "other@1 was not called"),
    "more refused than verdicts": ([screened(refused=1)], "unlike its verdicts"),
    "something put in a place unasked": (
        [screened(payload={"stands": {"arguments": {"name": "evil"}}})],
        "that no hook replaced",
    ),
    "a call in spite of a no": (
        [
            screened("tool look", refused=1),
            withheld(to="tool look", verdict="refused"),
            e.ToolRead(slot="0.1/9", tool="look", requested_hash="h", payload={"result": {}}),
        ],
        "guard had refused the content that it sends",
    ),
    "a refusal by nobody": (
        [e.ModelFailed(slot="0.1/9", conversation="0.1/9", turn=0, code="content_refused", payload={"message": "no"})],
        "no hook refused it",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_verdicts_that_do_not_hang_together_are_found(stage: Stage, tools: Toolbox, what: str) -> None:
    """Written with the installation's key, so only their content gives them away."""
    answer, problem = FORGED[what]
    run = stage.start(acting(tools, "look a"))
    journal = stage.take(run)
    stage.wait(journal.load())
    stage.wait(journal.commit(Batch(answer)))
    assert any(problem in found for found in verify(run.id).problems), verify(run.id).problems


def test_a_changed_verdict_stops_the_run(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """It was edited in the database."""
    stage.screens = (guard,)
    run = stage.start(acting(tools, "order dirty"))
    stage.kill_at = [("CP2", "order")]
    assert stage.drive() == "killed"
    tamper("UPDATE ledger_event SET sealed = NULL WHERE run_id = %s AND kind = 'ContentScreened'", run.id)
    failover.worker_died(stage.worker.id, "the test says so")
    Process.objects.update(ended_at=None)
    Run.objects.filter(pk=run.pk).update(ready_at=now())
    assert stage.drive() == "operator" and outside.requests == []
    assert any("was changed" in found for found in verify(run.id).problems)
