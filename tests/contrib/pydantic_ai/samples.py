"""Three agents copied from Pydantic AI's documentation, with scripted models."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from durableagents import Agent as Graph
from durableagents import Context, End
from durableagents.contrib.pydantic_ai import durable
from runs.engine.budget import UNLIMITED, Caps
from runs.engine.errors import ModelFailure
from tests.unit.engine.story import Story
from tests.world import IN_PLACE, Notes, agent_of


@dataclass
class World:
    done: Counter[str] = field(default_factory=Counter)
    keys: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # one line per request that a model answered


WORLD = World()


def heard(messages: list[ModelMessage]) -> list[str]:
    """Return what the model was told since it was asked, one word each."""
    items = []
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolReturnPart):
            items.append(f"{part.tool_name}:{part.outcome}")
        elif isinstance(part, RetryPromptPart) or part.part_kind == "retry-feedback":
            items.append("again")
    return items


def told(messages: list[ModelMessage], tool: str) -> Any:
    answers = [p.content for m in messages for p in m.parts if isinstance(p, ToolReturnPart) and p.tool_name == tool]
    return answers[-1]


# --- a bank's support: dependencies, dynamic instructions, tools, a typed output --------------------------------------


@dataclass
class Bank:
    customer_id: int
    names: dict[int, str]


class Support(BaseModel):
    """The answer to the customer."""

    advice: str
    block_card: bool
    risk: int = Field(ge=0, le=10)


def _support(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    WORLD.asked.append(f"support {len(messages)}")
    assert info.instructions is not None and "The customer's name is 'John'" in info.instructions
    match len(messages):
        case 1:
            return ModelResponse([ToolCallPart("customer_balance", {"include_pending": True})])
        case 3:
            calls = [
                ToolCallPart("block_card", {"reason": "lost"}),
                ToolCallPart("note", {"text": "lost"}),
                ToolCallPart("customer_balance", {"include_pending": False}),
            ]
            return ModelResponse(calls)
    balance = told(messages, "customer_balance")
    return ModelResponse([ToolCallPart("final_result", {"advice": f"{balance}", "block_card": True, "risk": 8})])


support_agent = Agent(
    FunctionModel(_support),
    deps_type=Bank,
    output_type=Support,
    name="support",
    system_prompt="You are a support agent in our bank.",
)


@support_agent.instructions
async def add_customer_name(ctx: RunContext[Bank]) -> str:
    return f"The customer's name is {ctx.deps.names[ctx.deps.customer_id]!r}"


@support_agent.tool
async def customer_balance(ctx: RunContext[Bank], include_pending: bool) -> str:
    """Returns the customer's current account balance."""
    WORLD.done["customer_balance"] += 1
    return f"${123.45 + include_pending:.2f}"


@support_agent.tool
def block_card(ctx: RunContext[Bank], reason: str) -> dict[str, Any]:
    """Blocks the card: a function that isn't async, and sends a key along."""
    WORLD.done[f"block_card {reason}"] += 1
    assert ctx.metadata is not None
    WORLD.keys.append(ctx.metadata["idempotency_key"])
    return {"blocked": ctx.deps.customer_id, "on": date(2026, 11, 23)}


@support_agent.tool_plain
async def note(text: str) -> None:
    WORLD.done[f"note {text}"] += 1


# --- SQL: a union of outputs, a validator that retries, a tool that does too ------------------------------------------


class Query(BaseModel):
    """A query that runs."""

    sql: str
    explanation: str = ""


class Impossible(BaseModel):
    """The reason why there is none."""

    error_message: str


def _sql(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    WORLD.asked.append(f"sql {len(messages)}")
    names = [tool.name for tool in info.output_tools]
    match heard(messages):
        case []:
            return ModelResponse([TextPart("Let me look."), ToolCallPart("schema_of", {"table": "recrods"})])
        case ["again"] | [_]:
            return ModelResponse([ToolCallPart("schema_of", {"table": "records"})])
        case [*_, "schema_of:success"]:
            return ModelResponse([ToolCallPart(names[0], {"sql": "DELETE FROM records"})])
        case _:
            return ModelResponse([ToolCallPart(names[0], {"sql": "SELECT * FROM records", "explanation": "all"})])


sql_agent = Agent(
    FunctionModel(_sql), output_type=[Query, Impossible], name="sql", instructions="Write PostgreSQL.", retries=3
)


@sql_agent.tool_plain
def schema_of(table: str) -> str:
    """The columns of a table."""
    WORLD.done[f"schema_of {table}"] += 1
    if table != "records":
        raise ModelRetry(f"there is no table {table!r}")
    return "id, level"


@sql_agent.output_validator
async def must_read(ctx: RunContext[None], output: Query | Impossible) -> Query | Impossible:
    if isinstance(output, Query) and not output.sql.upper().startswith("SELECT"):
        raise ModelRetry("Please create a SELECT query")
    return output


# --- files: one approved, one executed elsewhere, one answered later, at once -----------------------------------------


def _files(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    WORLD.asked.append(f"files {len(messages)}")
    if len(messages) == 1:
        return ModelResponse(
            [
                ToolCallPart("delete_file", {"path": ".env"}),
                ToolCallPart("pick_colour", {"among": ["red", "blue"]}),
                ToolCallPart("render", {"seconds": 3}),
                ToolCallPart("list_files", {}),
            ]
        )
    items = [p.model_response_str() for p in messages[-1].parts if isinstance(p, ToolReturnPart)]
    outcomes = [p.outcome for p in messages[-1].parts if isinstance(p, ToolReturnPart)]
    return ModelResponse([TextPart(json.dumps([items, outcomes]))])


files_agent = Agent(
    FunctionModel(_files),
    name="files",
    toolsets=[ExternalToolset([ToolDefinition(name="pick_colour", description="Let the user pick a colour.")])],
)


@files_agent.tool_plain(requires_approval=True)
def delete_file(path: str) -> str:
    WORLD.done[f"delete_file {path}"] += 1
    return f"File {path!r} deleted"


@files_agent.tool
async def render(ctx: RunContext[None], seconds: int) -> str:
    """Carried out by a service that calls back."""
    WORLD.done[f"render {seconds}"] += 1
    assert ctx.metadata is not None and ctx.metadata["callback_url"]
    raise CallDeferred({"job": seconds})


@files_agent.tool_plain
def list_files() -> list[str]:
    WORLD.done["list_files"] += 1
    return [".env", "README.md"]


# --- agents made on the spot ------------------------------------------------------------------------------------------


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def calling(*calls: list[tuple[str, Any]] | str) -> FunctionModel:
    """Return a model with these turns: tool calls, or a text in which `{}` is replaced by the results."""

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        wanted = calls[sum(isinstance(m, ModelResponse) for m in messages)]
        if isinstance(wanted, str):
            return ModelResponse([TextPart(wanted.replace("{}", "; ".join(back(messages))))])
        return ModelResponse([ToolCallPart(name, args) for name, args in wanted])

    return FunctionModel(say)


def back(messages: list[ModelMessage]) -> list[str]:
    items = []
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            items.append(f"{part.outcome}: {part.model_response_str(wrap_if_error=False)}")
        elif isinstance(part, RetryPromptPart):
            items.append(f"again: {part.content}")
        elif isinstance(part, UserPromptPart):
            items.append(f"user: {part.content}")
        else:
            items.append(part.part_kind)
    return items


def thinking(agent: Agent[Any, Any], *, deps: Any = None, times: int = 1, prompt: str = "go", **how: Any) -> Graph:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            if times > 1:
                return End(await ctx.gather(*(ctx.think(agent, f"{prompt} {i}", deps=deps) for i in range(times))))
            return End(await ctx.think(agent, prompt, deps=deps))
        except ModelFailure as failure:
            return End([failure.code, failure.message])

    return agent_of(node, assistants=[durable(agent, **({"name": "it"} | how))])


async def settled(agent: Agent[Any, Any], *, caps: Caps = UNLIMITED, deps: Any = None, **how: Any) -> Story:
    story = Story(thinking(agent, deps=deps, **how), retry=IN_PLACE, caps=caps)
    await story.settle()
    return story
