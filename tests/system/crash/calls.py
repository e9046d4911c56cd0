"""The calls that the crash harness makes: their shapes and tools, one of each kind."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP

import httpx
from pydantic import BaseModel

from durableagents import (
    DidNotHappen,
    Document,
    Gate,
    Happened,
    Pending,
    Piece,
    Redact,
    ReplayClass,
    Stage,
    ToolCall,
    Withhold,
    env,
    screen,
    tool,
)
from durableagents.demo import smtp, upstream
from runs.engine.tools import FOR_DISPATCH, Tool
from tests.system.crash.late import FURTHER_TO
from tests.system.crash.steps import STAGES

# --- what goes in and comes out ---------------------------------------------------------------------------------------


class Job(BaseModel):
    """The steps: calls, one or several at once; `hop` enters the node again; `signal`, `question`, `message` wait."""

    steps: list[str]
    sleep_seconds: float = 0.05


class Progress(BaseModel):
    job: Job
    at: int = 0
    answers: list[str] = []
    told: list[str] = []
    handed: int = 0


class Word(BaseModel):
    """A message to the run, sent once."""

    word: str


class Heard(BaseModel):
    words: int


class Report(BaseModel):
    answers: list[str]
    handed: int = 0


class Arguments(BaseModel):
    """`n` is the step's place, so no two calls of a run are alike. A `mark` is for the screening hook alone."""

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

GATE = Gate("finance_po", "Always", headline=lambda args: f"Step {args.n}")
GATES = {
    "gated": GATE,
    "staged": Gate(STAGES[0][0], "Always", quorum=STAGES[0][1], then=[Stage(*each) for each in STAGES[1:]]),
    "further": Gate(
        "finance_po", "Always", within=timedelta(seconds=0.4), on_timeout="escalate", escalate_to=FURTHER_TO
    ),
    "patient": Gate("finance_po", "Always", within=timedelta(seconds=0.3), on_timeout="remind"),
    # A call's evidence is bound by its bytes: those of the request, also where a person changes it.
    "changed": Gate(
        "finance_po",
        "Always",
        headline=lambda args: f"Step {args.n}",
        editable=["n"],
        documents=lambda args: [Document("order.txt", "text/plain", f"Step {args.n}, to be signed.\n" * 50)],
    ),
    "again": Gate("finance_po", "Always", headline=lambda args: f"Step {args.n}", same=["mark"]),
    "brief": Gate("finance_po", "Always", within=timedelta(seconds=0.4)),
}


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
        "legal_name": f"Crash Test {args.n} Ltd",
        "country": "DE",
        "tax_id": "DE-100000000",
        "contact_email": "crash@test.example",
        "category": "Crash tests",
    }
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


def _gated(name: str, gate: Gate) -> Tool:
    """An effect under a key, after what the gate asks for."""

    async def create(args: Arguments, call: ToolCall) -> Answer:
        return await _create(args, call)

    create.__name__ = name
    gated = tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp", gate=gate, effect="Adds a vendor.")
    return gated(create)


gated, staged, further, patient, changed, again, brief = (_gated(name, gate) for name, gate in GATES.items())


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="portal", answers_later=True, output=_Requested)
async def later(args: Arguments, call: ToolCall) -> Pending:
    """An effect under a key that is answered by callback."""
    body = {
        "legal_name": f"Crash Test {args.n} Ltd",
        "tax_id": "DE-100000000",
        "contact_email": "crash@test.example",
        "callback_url": call.callback_url,
    }
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


_ALL = (pure, cached, keyed, hooked, gated, staged, further, patient, changed, again, brief, later)
CALLS: dict[str, Tool] = {each.name: each for each in (*_ALL, unsafe, unsafe_gated, unsafe_hooked, unsafe_slow)}
