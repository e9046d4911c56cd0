"""A fingerprint differs exactly where two versions of an agent behave differently."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.engine.agents import Agent, registry
from runs.engine.fingerprint import changed, first_scheme, is_current
from tests.cases import each_case

SOURCE = '''
from datetime import timedelta
from decimal import Decimal
from pydantic import BaseModel, field_validator
from durableagents import Agent, Assistant, Context, DidNotHappen, End, Gate, Pending, ReplayClass, ToolCall, tool

LIMIT = Decimal("10000")


class Order(BaseModel):
    """What is ordered."""

    amount: Decimal = Decimal(1)

    @field_validator("amount")
    @classmethod
    def _positive(cls, value: Decimal) -> Decimal:
        if value < 0:
            raise ValueError("less than nothing")
        return value


class Done(BaseModel):
    ref: str = ""


class Answer(BaseModel):
    text: str


def is_dear(args: Order) -> bool:
    return args.amount >= LIMIT


async def ask_bank(args: Order, call: ToolCall) -> DidNotHappen | None:
    return None


def address(args: Order) -> str:
    return f"/orders/{args.amount}"


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    timeout=10.0,
    key_ttl=timedelta(hours=24),
    external_id="ref",
    reconcile=ask_bank,
    check_answer=lambda receipt, answer: None, on_receipt=lambda args, receipt: Done(ref=str(receipt)),
    gate=Gate("finance_po", "dear orders", when=lambda args: is_dear(args), headline=lambda args: f"${args.amount}"),
)
async def order(args: Order, call: ToolCall) -> Done:
    """Orders."""
    return Done(ref=address(args))


mind = Assistant("mind", "Think.", Answer, tools=[order], max_turns=5, offline=lambda messages, info: None)
agent = Agent("print", "1.0.0", input=Order, state=Order, output=Done, tools=[order], assistants=[mind],
  initial=lambda given: given)


def doubled(amount: Decimal) -> Decimal:
    return twice(amount)


def twice(amount: Decimal) -> Decimal:
    return amount * 2


@agent.node(start=True)
async def begin(state: Order, ctx: Context) -> End:
    """Begins."""
    done = await ctx.call(order, Order(amount=doubled(state.amount)))
    return End(done)
'''

Load = Callable[..., Agent]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    count = 0

    def made(old: str = "", new: str = "", source: str = SOURCE) -> Agent:
        nonlocal count
        count += 1
        assert old in source
        path = tmp_path / f"{count}" / "printed.py"
        path.parent.mkdir()
        path.write_text(source.replace(old, new, 1) if old else source)
        spec = importlib.util.spec_from_file_location("printed", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["printed"] = module
        registry.remove("print@1.0.0")
        spec.loader.exec_module(module)
        agent = module.agent
        assert isinstance(agent, Agent)
        agent.validate()
        agent.fingerprint()
        return agent

    return made


@pytest.fixture(autouse=True)
def _forget_the_module() -> object:
    yield
    sys.modules.pop("printed", None)


CHANGES = {
    "a constant that the rule's helper names": ('Decimal("10000")', 'Decimal("100000")'),
    "the rule's helper": ("args.amount >= LIMIT", "args.amount > LIMIT"),
    "the rule itself": ("when=lambda args: is_dear(args)", "when=lambda args: not is_dear(args)"),
    "the headline": ('f"${args.amount}")', 'f"EUR {args.amount}")'),
    "the gate's time": ('"dear orders",', '"dear orders", within=timedelta(days=1),'),
    "the tool's helper": ('f"/orders/{args.amount}"', 'f"/v2/orders/{args.amount}"'),
    "the tool's words for a model": ('"""Orders."""', '"""Orders twice."""'),
    "the id": ('external_id="ref"', "external_id=None"),
    "the hook": ("    return None\n", "    return DidNotHappen()\n"),
    "no hook": ("reconcile=ask_bank", "reconcile=None"),
    "the check of answers": ("lambda receipt, answer: None", "lambda receipt, answer: 'no'"),
    "the receipt, in the same line": ("ref=str(receipt)", "ref=repr(receipt)"),
    "one after the other": ("timeout=10.0", "timeout=10.0, sequential=True"),
    "the input": ("    amount: Decimal = Decimal(1)", "    amount: Decimal = Decimal(2)"),
    "the assistant's answer": ("    text: str", "    text: str = ''"),
    "the assistant's tools": ("tools=[order], max_turns", "tools=[], max_turns"),
    "the first state": ("initial=lambda given: given", "initial=lambda given: Order()"),
}
SAME = {
    "layout": ("return amount * 2", "return (\n        amount\n        * 2\n    )"),
    "lines before it": ("LIMIT = ", "\n\n\nLIMIT = "),
    "a node's words": ('"""Begins."""', '"""Begins, as it must."""'),
    "the agent's own words": ('Agent("print", "1.0.0",', 'Agent("print", "1.0.0", description="It prints.",'),
    "the scripted model": ("offline=lambda messages, info: None", "offline=lambda messages, info: 1"),
}


@each_case("change", CHANGES)
def test_what_changes_its_behaviour_changes_its_fingerprint(load: Load, change: str) -> None:
    before, after = load(), load(*CHANGES[change])
    assert before.fingerprint() != after.fingerprint()
    assert list(changed(before.parts(), after.parts())), "and it can be said where"


@each_case("change", SAME)
def test_what_only_reads_otherwise_keeps_it(load: Load, change: str) -> None:
    assert load().fingerprint() == load(*SAME[change]).fingerprint()


def test_it_is_said_where_two_versions_differ(load: Load) -> None:
    assert set(changed(load().parts(), load('"finance_po"', '"legal"').parts())) == {"tools.order.gate.queue"}


def test_every_process_has_the_same_whatever_its_hash_seed(tmp_path: Path) -> None:
    (tmp_path / "printed.py").write_text(SOURCE)
    items = set()
    for seed in ("0", "1", "4711"):
        question = [sys.executable, "-c", "import printed; print(printed.agent.fingerprint())"]
        env = {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}", "PYTHONHASHSEED": seed, "PATH": ""}
        items.add(subprocess.run(question, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(items) == 1 and is_current(items.pop())


def test_functions_of_one_maker_are_told_apart_by_what_they_were_made_with(load: Load) -> None:
    source = SOURCE.replace("when=lambda args: is_dear(args)", "when=above(10)").replace(
        "class Order",
        "def above(limit):\n    def rule(args):\n        return args.amount > limit and rule\n  "
        "  return rule\n\n\nclass Order",
    )
    assert (
        load(source=source).fingerprint()
        == load(source=source).fingerprint()
        != load("above(10)", "above(11)", source).fingerprint()
    )


def test_an_agent_without_readable_source_has_one_too() -> None:
    space: dict[str, object] = {"__name__": "nowhere"}
    registry.remove("print@1.0.0")
    exec(compile(SOURCE, "<nowhere>", "exec", dont_inherit=True), space)
    first = space["agent"]
    registry.remove("print@1.0.0")
    other: dict[str, object] = {"__name__": "nowhere"}
    exec(
        compile(
            SOURCE.replace("args.amount >= LIMIT", "args.amount > LIMIT").replace(
                "address(args))", "address(args) + '')"
            ),
            "<nowhere>",
            "exec",
            dont_inherit=True,
        ),
        other,
    )
    second = other["agent"]
    assert isinstance(first, Agent) and isinstance(second, Agent)
    assert first.fingerprint() != second.fingerprint() and json.dumps(first.parts())


def test_the_older_scheme_is_still_known_and_never_mistaken(load: Load) -> None:
    agent = load()
    assert first_scheme(agent) == first_scheme(agent) and not is_current(first_scheme(agent))
    assert is_current(agent.fingerprint())
