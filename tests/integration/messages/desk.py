"""An agent that takes documents while it waits, and its senders."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from durableagents import Agent, Context, End, Refused
from runs.models import Message, Run, Wait
from runs.services.messages import sending
from runs.services.messages.sending import Sent
from tests.integration.runs.stage import now
from tests.world import SHOP, Asked, Item, Toolbox, agent_of


class Add(BaseModel):
    name: str = Field(max_length=70_000)
    pages: int = Field(default=1, ge=1)


class Count(BaseModel):
    documents: int


class Desk(BaseModel):
    documents: list[str] = []
    pages: int = 0


def no_twins(state: Desk, request: Add) -> None:
    if request.name in state.documents:
        raise Refused("it is here already", code="twin")
    if request.name == "bug":
        raise ZeroDivisionError("in the check")


def desk(tools: Toolbox, *functions: Any, **more: Any) -> Agent:
    async def wait(state: Desk, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="first"))
        await ctx.signal("go")
        return End(state.model_dump())

    given = functions or (wait,)
    agent = agent_of(*given, tools=tools.all(), input=Asked, state=Desk, initial=lambda asked: Desk(), **more)

    @agent.message(takes=Add, answers=Count, check=no_twins)
    def add(state: Desk, request: Add) -> Count:
        state.documents.append(request.name)
        state.pages += request.pages
        if request.name == "none":
            raise Refused("there is no such document")
        return Count(documents=len(state.documents))

    return agent


def send(run: Run, name: str = "a", **more: Any) -> Sent:
    return sending.send(run.id, "add", {"name": name}, by=more.pop("by", SHOP), **more)


def due(run: Run) -> None:
    Wait.objects.filter(run=run, resolved_at=None).update(deadline=now())


def told(run: Run) -> list[tuple[int, str]]:
    return list(Message.objects.filter(run=run).order_by("n").values_list("n", "outcome"))
