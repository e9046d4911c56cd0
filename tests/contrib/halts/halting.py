"""Helpers for halts, and agents to be halted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from durableagents import Context, End
from durableagents.contrib.halts import services as halts
from durableagents.contrib.halts.models import Halt, Held
from durableagents.contrib.halts.releasing import pull_back, release_runs
from durableagents.contrib.halts.services import ALL_OF_IT, HaltBody, LiftBody, StageBody
from durableagents.contrib.halts.worker import KnownHalts
from ledger.actors import Actor
from runs.models import Run
from runs.services import lifecycle
from tests.integration.runs.stage import Stage
from tests.world import OLGA, SHOP, Item, Notes, Toolbox, agent_of

WHY = "the test says so"


def halt(scope: str, key: str = "", *, by: Actor = OLGA, **more: Any) -> Halt:
    confirm = ALL_OF_IT if scope == "all" else ""
    given = {"scope": scope, "key": key, "confirm": confirm, "justification": WHY} | more
    return halts.begin(HaltBody.model_validate(given), by=by)


def lift(it: Halt, *, by: Actor = OLGA, **more: Any) -> Halt:
    return halts.lift(it.halt, LiftBody(justification=WHY, **more), by=by)


def stage_of(it: Halt, **more: Any) -> Halt:
    return halts.stage(it.halt, StageBody.model_validate({"justification": WHY} | more), by=OLGA)


def calls(tools: Toolbox, *names: str, name: str = "thrower", version: str = "1.0.0") -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        done = [
            (await ctx.call(getattr(tools, one), Item(name=f"{state.asked.text}-{n}", amount=5000))).ref
            for n, one in enumerate(names)
        ]
        return End(",".join(done))

    return agent_of(node, tools=tools.all(), name=name, version=version)


def tagged(agent: Any, *tags: str) -> Run:
    return lifecycle.start(agent.graph_id, {}, tags=list(tags), by=SHOP)


def held() -> set[UUID]:
    return set(Held.objects.values_list("run_id", flat=True))


def release_all() -> int:
    """Release what is no longer halted; return how many runs were checked."""
    total = 0
    while done := release_runs():
        total += done
    assert pull_back() == []
    return total


def lift_for_all(it: Halt) -> None:
    lift(it)
    release_all()


class Asking:
    """A worker without cached halts, which asks each time, like one suspended for long."""

    is_any_known, read_at = True, 0.0

    def __init__(self, stage: Stage) -> None:
        self.known = KnownHalts(stage.worker.id).lend(stage.wait(stage.connected()))

    def is_about(self, key: str) -> bool:
        return True

    async def is_halted(self, run_id: str, key: str) -> bool:
        return await self.known.is_halted(run_id, key)


def once(act: Any, point: str, tool: str) -> Any:
    """Return a crash-point hook that calls `act` when this point is first reached."""
    done: list[int] = []

    def at(here: str, what: str) -> None:
        if (here, what) == (point, tool) and not done:
            done.append(1)
            act()

    return at


def now_halted() -> Halt:
    (row,) = Halt.objects.order_by("-id")[:1]
    return row
