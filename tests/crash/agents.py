"""An agent to crash: it does the steps that its input names, one call of every kind there is, on the real sandbox."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP

import httpx
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from durableagents import (
    Agent,
    Assistant,
    ContentRefused,
    Context,
    DidNotHappen,
    End,
    Gate,
    Handoff,
    Happened,
    Keywords,
    Number,
    Pending,
    Piece,
    Redact,
    Rejected,
    Renew,
    ReplayClass,
    ToolCall,
    Withhold,
    durable,
    env,
    screen,
    this_call,
    tool,
)
from durableagents.demo import smtp, upstream
from runs.engine.tools import FOR_DISPATCH, Tool
from tests.crash.steps import FAMILIES, GATHERED, OF

# --- what goes in and comes out ---------------------------------------------------------------------------------------


class Job(BaseModel):
    """`hop` enters the node again, `values` reads clock and chance and sets what the run is found by, `signal`,
    `question` and `message` wait to be told; the rest are calls, one or several at once."""

    steps: list[str]
    sleep_seconds: float = 0.05


class Progress(BaseModel):
    job: Job
    at: int = 0
    answers: list[str] = []
    told: list[str] = []


class Word(BaseModel):
    """What somebody tells the run, once."""

    word: str


class Heard(BaseModel):
    words: int


class Report(BaseModel):
    answers: list[str]


class Arguments(BaseModel):
    """`n` is the step's place in the job: no two calls of a run are alike. A `mark` is for the hook, and must never
    reach a tool."""

    n: int
    mark: str = ""


class Answer(BaseModel):
    """The effect's name upstream; null where a person said that it happened and knew no name."""

    id: str | None = None


class _Company(BaseModel):
    registration_number: str


class _Vendor(BaseModel):
    vendor_id: str


class _Requested(BaseModel):
    request_id: str


class _Stored(BaseModel):
    results: list[_Vendor]


# --- one tool of every kind -----------------------------------------------------------------------

GATE = Gate(queue="finance_po", rule="Always", headline=lambda args: f"Step {args.n}")
BRIEF_GATE = Gate(queue="finance_po", rule="Always", within=timedelta(seconds=0.4))


@screen(version="1")
def unmarked(piece: Piece) -> Withhold | Redact | None:
    """Refuses what is marked so, and takes any other mark off."""
    mark = piece.content.get("mark") if piece.to == "tool" else None
    if mark == "withheld":
        return Withhold("it is marked")
    return Redact(piece.content | {"mark": ""}, "it was marked") if mark else None


async def _create(args: Arguments, call: ToolCall) -> Answer:
    if args.mark:
        raise RuntimeError(f"the mark {args.mark!r} came through")
    body = {
        "legal_name": f"Crash Test {args.n} Ltd", "country": "DE", "tax_id": "DE-100000000",
        "contact_email": "crash@test.example", "category": "Crash tests",
    }  # fmt: skip
    return Answer(id=(await upstream.post("/api/erp/vendors", body, call, _Vendor)).vendor_id)


async def _created(args: Arguments, call: ToolCall) -> Happened | None:
    found = await upstream.get("/api/erp/vendors", {"idempotency_key": str(call.key)}, call, _Stored)
    return Happened(Answer(id=found.results[0].vendor_id)) if found.results else None


def _mail(args: Arguments, call: ToolCall) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = "crash@durableagents.example", "vendor@test.example"
    message["Subject"] = f"Step {args.n}"
    message["X-Run-Id"], message["X-Operation"] = call.run_id, call.tool
    message.set_content(f"Step {args.n}, attempt {call.attempt}.\n")
    return message


def _send(args: Arguments, call: ToolCall, timeout: float = 0.0) -> Answer:
    port, seconds = env.load().sandbox_smtp_port, timeout or call.timeout * 0.9
    smtp.deliver(_mail(args, call), to="vendor@test.example", host="127.0.0.1", port=port, timeout=seconds)
    return Answer(id=f"{call.slot}-{call.attempt}")


async def _sent(args: Arguments, call: ToolCall) -> Happened | DidNotHappen:
    """Ask the mailbox, which here is the oracle: a mail server with a search for a mail's exact bytes."""
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        answer = await client.get(f"{env.load().sandbox_url}/effects", params={"run_id": call.run_id})
    digest = hashlib.sha256(_mail(args, call).as_bytes(policy=SMTP)).hexdigest()
    is_there = any(row["body_sha256"] == digest and row["executed"] for row in answer.json())
    return Happened(Answer(id="found")) if is_there else DidNotHappen()


@tool(replay_class=ReplayClass.PURE, system="registry")
async def pure(args: Arguments, call: ToolCall) -> Answer:
    """Read."""
    query = {"name": f"Crash Test {args.n} Ltd", "country": "DE", "tax_id": "DE-100000000"}
    return Answer(id=(await upstream.get("/api/registry/companies", query, call, _Company)).registration_number)


@tool(replay_class=ReplayClass.PURE, system="registry", cache=timedelta(seconds=1))
async def cached(args: Arguments, call: ToolCall) -> Answer:
    """Read what others may have read a moment ago."""
    return await pure.opened(FOR_DISPATCH)(args, call)  # type: ignore[no-any-return]


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp")
async def keyed(args: Arguments, call: ToolCall) -> Answer:
    """An effect under a key; a repeat is all there is to find out what became of it."""
    return await _create(args, call)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp", reconcile=_created, external_id="id")
async def hooked(args: Arguments, call: ToolCall) -> Answer:
    """An effect under a key that upstream can be asked about."""
    return await _create(args, call)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp", gate=GATE, effect="Adds a vendor.")
async def gated(args: Arguments, call: ToolCall) -> Answer:
    """An effect under a key, after a person's yes."""
    return await _create(args, call)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp", gate=BRIEF_GATE, effect="Adds a vendor.")
async def brief(args: Arguments, call: ToolCall) -> Answer:
    """The same, if the yes comes soon: the gate closes by itself."""
    return await _create(args, call)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="portal", answers_later=True, output=_Requested)
async def later(args: Arguments, call: ToolCall) -> Pending:
    """An effect under a key that is answered by callback."""
    body = {
        "legal_name": f"Crash Test {args.n} Ltd", "tax_id": "DE-100000000", "contact_email": "crash@test.example",
        "callback_url": call.callback_url,
    }  # fmt: skip
    return Pending(receipt=(await upstream.post("/api/portal/w9-requests", body, call, _Requested)).model_dump())


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, system="email")
def unsafe(args: Arguments, call: ToolCall) -> Answer:
    """An effect that nobody can tell from its repeat."""
    return _send(args, call)


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, system="email", gate=GATE, effect="Sends a mail.")
def unsafe_gated(args: Arguments, call: ToolCall) -> Answer:
    """The same, after a person's yes."""
    return _send(args, call)


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, system="email", reconcile=_sent)
def unsafe_hooked(args: Arguments, call: ToolCall) -> Answer:
    """The same, where the mailbox can be searched."""
    return _send(args, call)


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, system="email", timeout=1.0)
def unsafe_slow(args: Arguments, call: ToolCall) -> Answer:
    """The same, by a function that goes on sending when the engine has given up on it."""
    return _send(args, call, timeout=20.0)


CALLS: dict[str, Tool] = {
    each.name: each
    for each in (pure, cached, keyed, hooked, gated, brief, later, unsafe, unsafe_gated, unsafe_hooked, unsafe_slow)
}

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
    found = content["id"] if isinstance(content, dict) else "none"
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"id": found}, tool_call_id="call-2")])


thinker = Assistant(
    name="thinker", instructions="Call keyed once.", output=Thought, tools=[keyed], offline=_script, most_tokens=100
)

_ASIDE = "So that the window fills, a good deal is said beside it. " * 16


def _ponder(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Read four companies, call the keyed tool, give its answer back: by what the conversation still holds, or by what
    stands for the rest of it."""
    told = " ".join(str(getattr(part, "content", None) or part) for message in messages for part in message.parts)
    read = max((int(n) for n in re.findall(r"'n': (200[0-9])", told)), default=1999)
    booked = re.findall(r"keyed answered: \{'id': '([^']+)'\}", told) + [
        part.content["id"] for message in messages for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == "keyed" and isinstance(part.content, dict)
        and "id" in part.content
    ]  # fmt: skip
    if booked:
        call = ToolCallPart(info.output_tools[0].name, {"id": booked[-1]}, tool_call_id="call-end")
    elif read < 2003:
        call = ToolCallPart("pure", {"n": read + 1}, tool_call_id=f"call-{read + 1}")
    else:
        call = ToolCallPart("keyed", {"n": 1000}, tool_call_id="call-keyed")
    return ModelResponse(parts=[TextPart(_ASIDE), call])


ponderer = Assistant(
    name="ponderer", instructions="Read, then call keyed once.", output=Thought, tools=[pure, keyed], offline=_ponder,
    most_tokens=100, window=1200, max_turns=20,
)  # fmt: skip


def _assist(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Look and book at once, then give what was booked, twice: the first time it is sent back."""
    assert info.instructions == "Book for step-by-step."
    booked = [
        part.content["id"] for message in messages for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == "book" and isinstance(part.content, dict)
    ]  # fmt: skip
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
    (asked,) = (str(part.content) for part in messages[0].parts if isinstance(part, UserPromptPart))
    return ModelResponse([ToolCallPart("clerk", {"n": int(asked)})])


clerk_agent = PydanticAgent(FunctionModel(_clerical), output_type=str, name="clerk")


@clerk_agent.tool_plain(requires_approval=True, timeout=5.0)
def clerk(n: int) -> Answer:
    """An effect that nobody can tell from its repeat, after a person's yes."""
    return _send(Arguments(n=n), this_call())


CLERK = durable(
    clerk_agent, tools={"clerk": ReplayClass.UNSAFE_ON_REPLAY}, most_tokens=100,
    gates={"clerk": Gate(queue="finance_po", rule="Always", headline=lambda args: f"Step {args['n']}")},
)  # fmt: skip
AIDE = durable(
    aide, tools={"glance": ReplayClass.PURE, "book": ReplayClass.IDEMPOTENT_WITH_KEY}, most_tokens=100
)  # fmt: skip

agent = Agent(
    "crash-test", "1.0.0", input=Job, state=Progress, output=Report, initial=lambda job: Progress(job=job),
    title="Crash test", description="Does what its input says, and is killed meanwhile.",
    tools=list(CALLS.values()), assistants=[thinker, ponderer, AIDE, CLERK],
    attributes={"place": Number(), "told": Keywords()}, screens=[unmarked],
)  # fmt: skip


helper = Agent(
    "crash-child", "1.0.0", input=Arguments, state=Arguments, output=Answer, initial=lambda args: args,
    title="Crash test's child", description="One keyed call, as a step of another run.", tools=[keyed],
)  # fmt: skip


class Turn(BaseModel):
    n: int
    turn: int = 0


renewer = Agent(
    "crash-renewer", "1.0.0", input=Arguments, state=Turn, output=Answer, initial=lambda args: Turn(n=args.n),
    title="Crash test's child that goes on", description="A keyed call, renewed, another, handed off.", tools=[keyed],
)  # fmt: skip


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
    return End(Report(answers=state.answers))


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
