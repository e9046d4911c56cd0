"""An agent, and ten changes of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from runs.engine.agents import Agent, registry

GRAPH_ID = "desk@1.0.0"
DESK = {
    "__init__": "",
    "rules": "LIMIT = 1000\n\n\ndef fee(amount):\n    return amount // 100\n",
    "outside": "SENT = []\n",
    "tools": """
from durableagents import Gate, ReplayClass, tool
from pydantic import BaseModel

from . import outside
from .rules import LIMIT


class Payment(BaseModel):
    to: str
    amount: int


class Paid(BaseModel):
    ref: str


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=10.0,
    gate=Gate("finance_po", "large sums", when=lambda args: args.amount > LIMIT),
)
async def pay(args: Payment, call) -> Paid:
    outside.SENT.append((call.run_id, args.amount))
    return Paid(ref=f"transfer {args.amount}")
""",
    "agents": """
from durableagents import Agent, Assistant, Context, End
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart

from .rules import fee
from .tools import Paid, Payment, pay


class Request(BaseModel):
    to: str
    amount: int


class State(BaseModel):
    to: str
    amount: int
    note: str = ""


clerk = Assistant(
    "clerk", "Sum the request up.", Paid, offline=lambda messages, info: ModelResponse(parts=[TextPart("as usual")])
)
agent = Agent(
    "desk", "1.0.0", input=Request, state=State, output=None, tools=[pay], assistants=[clerk], signals=["go"]
)


@agent.node(start=True, to=["wait"])
async def take(state: State, ctx: Context):
    state.note = await ctx.model(clerk, state.to)
    return "wait"


@agent.node(to=["settle"])
async def wait(state: State, ctx: Context):
    await ctx.call(pay, Payment(to=state.to, amount=1))
    await ctx.signal("go")
    return "settle"


@agent.node()
async def settle(state: State, ctx: Context):
    done = await ctx.call(pay, Payment(to=state.to, amount=state.amount + fee(state.amount)))
    return End({"ref": done.ref})
""",
}
# By their names on the page: the module, and its replacements.
CHANGES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "a renamed node": (
        "agents",
        [('to=["wait"]', 'to=["hold"]'), ('return "wait"', 'return "hold"'), ("def wait", "def hold")],
    ),
    "a new optional field": ("agents", [('    note: str = ""\n', '    note: str = ""\n    iban: str = ""\n')]),
    "a new required field": (
        "agents",
        [
            ('    note: str = ""\n', '    iban: str\n    note: str = ""\n'),
            (
                "input=Request, state",
                'initial=lambda given: State(iban="", **given.model_dump()), input=Request, state',
            ),
        ],
    ),
    "a removed field": (
        "agents",
        [('    note: str = ""\n\n\nclerk', "\n\nclerk"), ("    state.note = await", "    await")],
    ),
    "another gate limit": ("rules", [("LIMIT = 1000", "LIMIT = 100")]),
    "a tool's body": ("tools", [('f"transfer', 'f"instant')]),
    "a prompt": ("agents", [("Sum the request up.", "Sum the request up in a word.")]),
    "a timeout": ("tools", [("timeout=10.0", "timeout=20.0")]),
    "a new node": (
        "agents",
        [
            ('to=["settle"]', 'to=["check"]'),
            ('return "settle"', 'return "check"'),
            (
                "@agent.node()\n",
                '@agent.node(to=["settle"])\nasync def check(state: State, ctx: Context):\n    return "settle"\n\n\n'
                "@agent.node()\n",
            ),
        ],
    ),
    "a helper of the package": ("rules", [("amount // 100", "amount // 50")]),
}


def forget() -> None:
    for agent in registry.agents():
        if agent.name == "desk":
            registry.remove(agent.graph_id)
    for name in [name for name in sys.modules if name.partition(".")[0] == "desk"]:
        del sys.modules[name]


def written(folder: Path, change: str = "", *, version: str = "1.0.0") -> Path:
    sources = dict(DESK)
    module, steps = CHANGES[change] if change else ("agents", [])
    for old, new in steps:
        assert old in sources[module], (change, old)
        sources[module] = sources[module].replace(old, new)
    sources["agents"] = sources["agents"].replace('"1.0.0"', f'"{version}"')
    (folder / "desk").mkdir(parents=True)
    for name, text in sources.items():
        (folder / "desk" / f"{name}.py").write_text(text)
    return folder


def loaded(folder: Path) -> Agent:
    for name in [name for name in sys.modules if name.partition(".")[0] == "desk"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        agent = importlib.import_module("desk.agents").agent
        agent.validate()
        agent.fingerprint(), agent.older_fingerprints()
    finally:
        sys.path.remove(str(folder))
    assert isinstance(agent, Agent)
    return agent
