from __future__ import annotations

from datetime import timedelta
from typing import Any

from durableagents import Context, End, Happened, Pending, ReplayClass, ToolCall, tool
from ledger import events as e
from runs.models import Run
from runs.services import callbacks
from runs.workers import failover
from tests.integration.runs.stage import Stage, events, in_thread, now
from tests.world import Done, Item, Notes, agent_of


def test_a_callback_beats_the_hook_and_a_replay_sees_what_the_live_node_saw(stage: Stage) -> None:
    urls: list[str] = []
    seen: list[str] = []

    async def ask(args: Item, call: ToolCall) -> Any:
        in_thread(lambda: callbacks.receive_callback(urls[0].rsplit("/", 1)[1], {"ref": "as called back"}))
        return Happened(Done(ref="as the hook has it"))

    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, answers_later=True, reconcile=ask, timeout=5)
    async def later(args: Item, call: ToolCall) -> Done:
        """Answers by callback."""
        assert call.callback_url is not None
        urls.append(call.callback_url)
        return Pending({"taken": True}, timedelta(hours=1))  # type: ignore[return-value]

    async def node(state: Notes, ctx: Context) -> End:
        seen.append((await ctx.call(later, Item(name="a"))).ref)
        await ctx.sleep(3600)
        return End(seen[-1])

    run = stage.start(agent_of(node, tools=[later]))
    stage.kill_at = [("CP4", "later")]
    assert stage.drive() == "killed"
    failover.worker_died(stage.worker.id, "gone")
    stage.worker = stage.hire()
    assert stage.drive() == "parked"
    Run.objects.filter(pk=run.pk).update(state="running", ready_at=now())
    assert stage.drive() == "parked"
    assert set(seen) == {"as called back"} and len(seen) == 2 and events(run, e.ToolReconciled) == []
