"""An agent to crash: it does the steps that its input names, one call of every kind there is, on the real sandbox."""

from __future__ import annotations

import copy
import re
from datetime import timedelta

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from durableagents import (
    Agent,
    Assistant,
    ChildFailure,
    ContentRefused,
    Context,
    End,
    Gate,
    Handoff,
    Keywords,
    Number,
    Rejected,
    Renew,
    ReplayClass,
)
from durableagents.contrib.pydantic_ai import durable, this_call
from durableagents.demo import upstream

# --- what goes in and comes out ---------------------------------------------------------------------------------------
from tests.system.crash.calls import (
    CALLS,
    Answer,
    Arguments,
    Heard,
    Job,
    Progress,
    Report,
    Word,
    _Company,
    _create,
    _Requested,
    _send,
    keyed,
    pure,
    unmarked,
)
from tests.system.crash.ramped import ramped, ramped_2
from tests.system.crash.steps import FAMILIES, GATHERED, OF
from tests.system.crash.undoer import giver, regretter, undoer

# --- the agent ------------------------------------------------------------------------------------


class Thought(BaseModel):
    id: str


class Impossible(BaseModel):
    why: str


def _script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the keyed tool, then give its answer back."""
    answers = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not answers:
        return ModelResponse(parts=[ToolCallPart("keyed", {"n": 1000}, tool_call_id="call-1")])
    content = answers[-1].content
    found = content.get("id", "none") if isinstance(content, dict) else "none"  # a denial has none
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"id": found}, tool_call_id="call-2")])


thinker = Assistant(
    name="thinker", instructions="Call keyed once.", output=Thought, tools=[keyed], offline=_script, most_tokens=100
)

_ASIDE = "So that the window fills, a good deal is said beside it. " * 16


def _ponder(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Read four companies, call the keyed tool and return its answer, from the conversation or its summary."""
    text = " ".join(str(getattr(part, "content", None) or part) for message in messages for part in message.parts)
    read = max((int(n) for n in re.findall(r"'n': (200[0-9])", text)), default=1999)
    booked = re.findall(r"keyed answered: \{'id': '([^']+)'\}", text) + [
        part.content["id"]
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
        and part.tool_name == "keyed"
        and isinstance(part.content, dict)
        and "id" in part.content
    ]
    if booked:
        call = ToolCallPart(info.output_tools[0].name, {"id": booked[-1]}, tool_call_id="call-end")
    elif read < 2003:
        call = ToolCallPart("pure", {"n": read + 1}, tool_call_id=f"call-{read + 1}")
    else:
        call = ToolCallPart("keyed", {"n": 1000}, tool_call_id="call-keyed")
    return ModelResponse(parts=[TextPart(_ASIDE), call])


ponderer = Assistant(
    name="ponderer",
    instructions="Read, then call keyed once.",
    output=Thought,
    tools=[pure, keyed],
    offline=_ponder,
    most_tokens=100,
    window=1200,
    max_turns=20,
)


def _assist(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Look and book at once, then give what was booked, twice: the first time it is sent back."""
    assert info.instructions == "Book for step-by-step."
    answers = [
        part.content
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == "book"
    ]
    booked = [answer["id"] for answer in answers if isinstance(answer, dict)]
    booked += ["unknown" for answer in answers if isinstance(answer, str) and answer.startswith("This call happened")]
    if booked:
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"id": booked[-1]})])
    return ModelResponse([ToolCallPart("glance", {"n": 2000}), ToolCallPart("book", {"n": 1000})])


aide = PydanticAgent(FunctionModel(_assist), output_type=[Thought, Impossible], deps_type=str, name="aide", retries=4)


@aide.instructions
def _what_for(ctx: RunContext[str]) -> str:
    return f"Book for {ctx.deps}."


@aide.tool_plain
async def glance(n: int) -> str | None:
    """Read."""
    query = {"name": f"Crash Test {n} Ltd", "country": "DE", "tax_id": "DE-100000000"}
    return (await upstream.get("/api/registry/companies", query, this_call(), _Company)).registration_number


@aide.tool
async def book(ctx: RunContext[str], n: int) -> Answer:
    """An effect under a key."""
    assert ctx.metadata is not None and ctx.metadata["idempotency_key"] == this_call().key
    return await _create(Arguments(n=n), this_call())


@aide.output_validator
def _checked(ctx: RunContext[str], output: Thought | Impossible) -> Thought | Impossible:
    if ctx.retry == 0:
        raise ModelRetry("Sure?")
    return output


def _clerical(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for the one call, then say what came of it."""
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolReturnPart):
            sent = part.content.get("id") if isinstance(part.content, dict) else part.outcome
            return ModelResponse([TextPart(str(sent))])
    # A person's later message comes after that.
    question, *_ = (str(part.content) for part in messages[0].parts if isinstance(part, UserPromptPart))
    return ModelResponse([ToolCallPart("clerk", {"n": int(question)})])


clerk_agent = PydanticAgent(FunctionModel(_clerical), output_type=str, name="clerk")


@clerk_agent.tool_plain(requires_approval=True, timeout=5.0)
def clerk(n: int) -> Answer:
    """An effect that nobody can tell from its repeat, after a person's yes."""
    return _send(Arguments(n=n), this_call())


CLERK = durable(
    clerk_agent,
    tools={"clerk": ReplayClass.UNSAFE_ON_REPLAY},
    most_tokens=100,
    gates={"clerk": Gate(queue="finance_po", rule="Always", headline=lambda args: f"Step {args['n']}")},
)
AIDE = durable(aide, tools={"glance": ReplayClass.PURE, "book": ReplayClass.IDEMPOTENT_WITH_KEY}, most_tokens=100)

agent = Agent(
    "crash-test",
    "1.0.0",
    input=Job,
    state=Progress,
    output=Report,
    initial=lambda job: Progress(job=job),
    tools=list(CALLS.values()),
    assistants=[thinker, ponderer, AIDE, CLERK],
    attributes={"place": Number(), "told": Keywords()},
    screens=[unmarked],
)


def twin_of(original: Agent, version: str) -> Agent:
    """The same code under another version: a run that is moved there goes on in the middle of whatever it does."""
    found = copy.copy(original)
    found.version = version
    return found


helper = Agent("crash-child", "1.0.0", input=Arguments, state=Arguments, output=Answer, tools=[keyed])


class Turn(BaseModel):
    n: int
    turn: int = 0


renewer = Agent(
    "crash-renewer",
    "1.0.0",
    input=Arguments,
    state=Turn,
    output=Answer,
    initial=lambda args: Turn(n=args.n),
    tools=[keyed],
)


@renewer.node(start=True, title="Go on")
async def go_on(state: Turn, ctx: Context) -> Renew | Handoff:
    """Make a call, and go on as another run: once as its own, then as the helper's."""
    await ctx.call(keyed, Arguments(n=state.n + state.turn))
    return Handoff(helper, Arguments(n=state.n + 9)) if state.turn else Renew(Turn(n=state.n, turn=1))


@helper.node(start=True, title="Help")
async def help_out(state: Arguments, ctx: Context) -> End:
    """Make the call."""
    return End(await ctx.call(keyed, state))


@agent.message(takes=Word, answers=Heard)
def tell(state: Progress, request: Word) -> Heard:
    """Keep it. Nobody tells anything twice, so whatever is here already was handled before."""
    if request.word in state.told:
        raise RuntimeError(f"{request.word} was handled already")
    state.told.append(request.word)
    return Heard(words=len(state.told))


@agent.node(start=True, to=["work"], title="Work")
async def work(state: Progress, ctx: Context) -> str | End:
    """Do the steps in turn."""
    while state.at < len(state.job.steps):
        step = state.job.steps[state.at]
        state.at += 1
        if step == "hop":
            return "work"
        state.answers.append(await _do(step, state, ctx))
    return End(Report(answers=state.answers, handed=state.handed))


async def _do(step: str, state: Progress, ctx: Context) -> str:
    match step:
        case "sleep":
            await ctx.sleep(state.job.sleep_seconds)
            return "slept"
        case "message":
            heard, taken = len(state.told), await ctx.message("tell")
            if taken.answer["words"] != len(state.told) or len(state.told) <= heard:
                raise RuntimeError(f"answered {taken.answer} and the state has {state.told}")
            return f"message {taken.n}"
        case "think":
            return str((await ctx.think(thinker, "Do it.")).id)
        case "ponder":
            return str((await ctx.think(ponderer, "Read them all.")).id)
        case "aide":
            thought = await ctx.think(aide, "Do it.", deps="step-by-step")
            return thought.id if isinstance(thought, Thought) else "impossible"
        case "clerk":
            return str(await ctx.think(clerk_agent, str(state.at)))
        case "values":
            await ctx.set_attributes(place=state.at, told=[f"step {state.at}", *state.answers[-1:]][:2])
            return f"{await ctx.now()} {await ctx.random()} {await ctx.uuid()}"
        case "renewed":
            return str((await ctx.child(renewer, Arguments(n=100 * state.at))).id)
        case "undone" | "undone_mailed" | "regretted":
            mark = "mail" if step == "undone_mailed" else ""
            try:
                await ctx.child(regretter if step == "regretted" else undoer, Arguments(n=100 * state.at, mark=mark))
            except ChildFailure as failed:
                return failed.code
            raise RuntimeError("it came to a good end")
        case _ if step in FAMILIES:
            children = [ctx.child(helper, Arguments(n=100 * state.at + n)) for n in range(FAMILIES[step])]
            return " ".join(str(answer.id) for answer in await ctx.gather(*children))
        case _ if step in GATHERED:
            return " ".join(
                await ctx.gather(*(_call(ctx, kind, 100 * state.at + n) for n, kind in enumerate(GATHERED[step])))
            )
        case _:
            return await _call(ctx, step, state.at)


def _arguments(step: str, n: int) -> Arguments:
    """Of a read that others may have, always the same; of what a hook has a say in, with a mark."""
    return Arguments(n=1) if step in ("cached", "fresh") else Arguments(n=n, mark=step if step in OF else "")


_AGES = {"fresh": timedelta(milliseconds=200)}


async def _call(ctx: Context, step: str, n: int) -> str:
    if step == "signal":
        return str(await ctx.signal(f"step-{n}"))
    if step == "question":
        return str((await ctx.ask("legal", title=f"Step {n}", schema=Answer)).id)
    try:
        answer = await ctx.call(CALLS[OF.get(step, step)], _arguments(step, n), max_age=_AGES.get(step))
    except Rejected as no:
        return f"denied: {no.verdict}"
    except ContentRefused as kept:
        return f"kept back by {kept.hook}"
    return str(answer.request_id if isinstance(answer, _Requested) else answer.id)


# Besides the agent itself: its children of every kind, and one with two versions.
OTHERS = (helper, renewer, undoer, regretter, giver, ramped, ramped_2)
