"""A fingerprint covers the agent's whole package, and differences are described."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runs.engine.agents import Agent, registry
from runs.engine.fingerprint import differences, join_differences, next_version, second_scheme, tool_digest
from runs.engine.fingerprint.reach import home_of
from tests.cases import each_case

SHOP = {
    "__init__": "from .agents import agent\n",
    "limits": 'from decimal import Decimal\n\nLIMIT = Decimal("10000")\nRATES = {"DE": 19, "FR": 20}\nSENDER = "us"\n',
    "tax": (
        "from math import ceil as rounded\n\nfrom .limits import RATES\nfrom . import words\n\n\n"
        "def vat(amount):\n    return rounded(amount * RATES['DE'] / 100) + _fee(amount)\n\n\n"
        "def _fee(amount):\n    return 2 if words.is_long('x') else 1\n\n\n"
        "def unused(amount):\n    return 0\n"
    ),
    "words": 'def is_long(text):\n    """Long."""\n    return len(text) > 12\n',
    "stars": "def starred():\n    return 7\n",
    "late": "from durableagents import Agent\n\nHOURS = 8\n\n\ndef at_night():\n    return HOURS\n",
    "shapes": (
        "from pydantic import BaseModel, field_validator\n\nfrom .words import is_long\n\n\n"
        "class Order(BaseModel):\n    amount: int = 1\n    iban: str = ''\n\n"
        "    @field_validator('iban')\n    @classmethod\n"
        "    def _short(cls, value):\n        return value if not is_long(value) else ''\n\n\n"
        "class Done(BaseModel):\n    ref: str = ''\n"
    ),
    "tools": (
        "from datetime import timedelta\n\nfrom durableagents import Gate, ReplayClass, tool\n\n"
        "from . import limits\nfrom .shapes import Done, Order\nfrom .tax import vat\n\n\n"
        "def above(limit):\n    return lambda args: args.amount > limit\n\n\n"
        "@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=10.0, key_ttl=timedelta(hours=24),\n"
        "  gate=Gate('finance', 'dear ones', when=lambda args: args.amount >= limits.LIMIT))\n"
        "async def refund(args: Order, call) -> Done:\n    return Done(ref=str(vat(args.amount)))\n\n\n"
        "@tool(replay_class=ReplayClass.PURE, timeout=5.0, gate=Gate('finance', 'any', when=above(50)))\n"
        "async def look(args: Order, call) -> Done:\n    return Done()\n"
    ),
    "agents": (
        "import shop.late\nfrom durableagents import Agent, Assistant, Context, End\n\n"
        "from .shapes import Done, Order\nfrom .stars import *\nfrom .tax import vat\n"
        "from .tools import look, refund\n\n\n"
        "clerk = Assistant('clerk', 'Be brief.', Done, tools=[look], max_turns=5, temperature=0.5)\n"
        "agent = Agent('shop', '1.0.0', input=Order, state=Order, output=Done, tools=[refund],\n"
        "  assistants=[clerk])\n\n\n"
        "@agent.node(start=True, to=['pay'])\nasync def begin(state: Order, ctx: Context):\n"
        "    from .limits import SENDER\n"
        "    return 'pay', state.model_copy(update={'iban': SENDER + str(starred())})\n\n\n"
        "@agent.node()\nasync def pay(state: Order, ctx: Context):\n    shop.late.at_night()\n"
        "    await ctx.call(refund, Order(amount=vat(state.amount)))\n    return End(Done())\n"
    ),
}
Load = Callable[..., Agent]


def forget() -> None:
    for graph_id in ("shop@1.0.0", "other@1.0.0", "made@1.0.0"):
        registry.remove(graph_id)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def written(folder: Path, sources: dict[str, str]) -> Path:
    (folder / "shop").mkdir(parents=True)
    for name, text in sources.items():
        (folder / "shop" / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    count = 0

    def made(
        module: str = "", old: str = "", new: str = "", also: dict[str, str] | None = None, first: str = "shop"
    ) -> Agent:
        nonlocal count
        count += 1
        sources = SHOP | (also or {})
        if module:
            assert old in sources[module], (module, old)
            sources[module] = sources[module].replace(old, new, 1)
        forget()
        monkeypatch.syspath_prepend(written(tmp_path / str(count), sources))
        importlib.import_module(first)
        agent = importlib.import_module("shop.agents").agent
        assert isinstance(agent, Agent)
        agent.validate()
        agent.fingerprint(), agent.older_fingerprints()
        return agent

    yield made
    forget()


# The change, and its description.
CHANGES = {
    "the limit of a gate, a constant elsewhere": ("limits", '"10000"', '"20000"', "refund: gate limit 10000 → 20000"),
    "the limit that a gate's rule was made with": ("tools", "above(50)", "above(60)", "look: gate limit 50 → 60"),
    "a rate in a table": ("limits", '"DE": 19', '"DE": 21', "node pay, refund: RATES 19 → 21 (shop/limits.py)"),
    "a text": ("limits", '"us"', '"them"', "node begin: SENDER changed (shop/limits.py)"),
    "a helper": (
        "tax",
        "rounded(amount",
        "rounded(2 + amount",
        "node pay, refund: code changed (helper vat() in shop/tax.py)",
    ),
    "a helper's number": (
        "tax",
        "return 2 if",
        "return 3 if",
        "node pay, refund: code changed (helper _fee() in shop/tax.py: 2 → 3)",
    ),
    "a helper's helper, by its module": (
        "words",
        "> 12",
        "> 13",
        "input, look input, node begin, node pay, refund, refund input, state",
    ),
    "another function under the name that stayed": (
        "tax",
        "ceil as rounded",
        "floor as rounded",
        "node pay, refund: code changed (helper vat() in shop/tax.py)",
    ),
    "what a star brings": (
        "stars",
        "return 7",
        "return 8",
        "node begin: code changed (helper starred() in shop/stars.py: 7 → 8)",
    ),
    "by the whole name of a module": ("late", "HOURS = 8", "HOURS = 9", "node pay: HOURS 8 → 9 (shop/late.py)"),
    "a node": ("agents", "SENDER + str(", "str(", "node begin: code changed"),
    "a node's way": ("agents", "to=['pay']", "to=['pay', 'begin']", "node begin: leads to pay → pay, begin"),
    "a timeout": ("tools", "timeout=10.0", "timeout=20.0", "refund: timeout 10 s → 20 s"),
    "a key's life": ("tools", "hours=24", "hours=48", "refund: key lifetime 1 d → 2 d"),
    "a queue": ("tools", "'finance', 'dear", "'legal', 'dear", "refund: gate queue finance → legal"),
    "a rule's words": ("tools", "'dear ones'", "'all'", "refund: gate rule dear ones → all"),
    "no gate": ("tools", "gate=Gate('finance', 'dear", "gate=None and Gate('finance', 'dear", "refund: gate dropped"),
    "a tool": ("tools", "return Done(ref=str(", "return Done(ref='#' + str(", "refund: code changed"),
    "the class": (
        "tools",
        "ReplayClass.PURE",
        "ReplayClass.UNSAFE_ON_REPLAY",
        "look: replay class pure → unsafe_on_replay",
    ),
    "instructions": ("agents", "'Be brief.'", "'Be long.'", "assistant clerk: instructions changed"),
    "turns": ("agents", "max_turns=5", "max_turns=6", "assistant clerk: max_turns 5 → 6"),
    "temperature": ("agents", "temperature=0.5", "temperature=0.7", "assistant clerk: temperature 0.5 → 0.7"),
    "a field": ("shapes", "    iban: str = ''\n", "    iban: str = ''\n    bic: str = ''\n", "state: field bic added"),
    "a field that must be given": ("shapes", "    iban: str = ''\n", "    iban: str\n", "state: field iban changed"),
    "a validator": ("shapes", "not is_long(value)", "is_long(value)", "state"),
    "no output": ("agents", "output=Done, tools", "output=None, tools", "output: dropped"),
}
SAME = {
    "a helper's words": ("words", '"""Long."""', '"""So long."""'),
    "a helper that nothing names": ("tax", "return 0", "return 1"),
    "comments": ("tax", "def vat", "# of today\ndef vat"),
    "a title": ("agents", "Agent('shop', '1.0.0',", "Agent('shop', '1.0.0', title='Shop',"),
    "an import for nobody": ("limits", "from decimal", "import os\nfrom decimal"),
    "what a type checker reads": (
        "words",
        "def is_long",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import late\n\n\ndef is_long",
    ),
}


@each_case("change", CHANGES)
def test_what_changes_anywhere_in_the_package_is_seen_and_named(load: Load, change: str) -> None:
    module, old, new, found = CHANGES[change]
    before = load()
    after = load(module, old, new)
    assert before.fingerprint() != after.fingerprint()
    answer = differences(before.parts(), after.parts())
    assert any(found in each or all(one in each for one in found.split(", ")) for each in answer), answer
    stored = json.loads(json.dumps(before.parts()))
    assert differences(stored, after.parts()) == answer, "from the database it reads the same"
    assert differences(after.parts(), before.parts()), "and the other way"


@each_case("change", SAME)
def test_what_only_reads_otherwise_is_no_change(load: Load, change: str) -> None:
    before, after = load(), load(*SAME[change])
    assert before.fingerprint() == after.fingerprint() and differences(before.parts(), after.parts()) == []


def test_the_scheme_of_before_did_not_see_other_modules(load: Load) -> None:
    """Otherwise an upgrade would compare what nobody recorded."""
    assert second_scheme(load()) == second_scheme(load("tax", "amount * RATES", "amount + RATES"))


def test_a_tool_that_a_helper_changed_under_does_not_share_what_it_read(load: Load) -> None:
    def look(agent: Agent, name: str = "refund") -> str:
        tool = agent.tool(name)
        assert tool is not None
        return tool_digest(tool)

    assert look(load()) == look(load()) != look(load("tax", "amount * RATES", "amount + RATES"))


def test_a_module_counts_alike_whether_it_is_loaded_yet_or_not(tmp_path: Path) -> None:
    """A node may import a helper only when it runs: processes before and after that are one version."""
    agents = SHOP["agents"].replace("import shop.late\n", "")
    agents = agents.replace("    shop.late.at_night()\n", "    from .late import at_night\n    at_night()\n")
    late = "from durableagents import Agent\n\nfrom .shapes import Order\n\n"
    late += "other = Agent('other', '1.0.0', input=Order, state=Order)\n\n\ndef at_night():\n    return other.name\n"
    folder = written(tmp_path / "lazy", SHOP | {"agents": agents, "late": late})
    items = set()
    for first, seed in (("", "1"), ("import shop.late; ", "2")):
        question = [sys.executable, "-c", f"{first}import shop.agents as a; print(a.agent.fingerprint())"]
        env = {"PYTHONPATH": f"{folder}:{Path.cwd()}", "PYTHONHASHSEED": seed, "PATH": ""}
        items.add(subprocess.run(question, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(items) == 1


DECLARED = {
    "an undo": "back = Undo(refund, lambda args, result: args)\n",
    "a tool made of a function": "async def plain(args: Order, call) -> Done:\n    return Done()\n\n\n"
    "back = tool(replay_class=ReplayClass.PURE, timeout=1.0)(plain)\n",
    "a message": "@other.message(takes=Order)\ndef back(state, request):\n    return None\n",
    "a view": "@other.view(answers=Done)\ndef back(state):\n    return Done()\n",
    "a node, by another name": "from . import parts\n\n\n@parts.other.node(start=True)\n"
    "async def back(state, ctx):\n    return End(1)\n",
    "an agent that is made elsewhere": "back = made()\n",
    "somebody's own decorator of that name": "@own.tool\ndef back(x):\n    return 1\n",
    "one of two": "if HOURS:\n    back = other\nelse:\n    def back():\n        return 2\n",
    "itself": "back = back if 'back' in globals() else other\n",
}


@each_case("declared", DECLARED)
def test_declarations_count_alike_before_and_after_their_module_is_loaded(load: Load, declared: str) -> None:
    parts = (
        "from durableagents import Agent\n\nfrom .shapes import Order\n\n"
        "other = Agent('other', '1.0.0', input=Order, state=Order)\n\n\n"
        "def made():\n    return Agent('made', '1.0.0', input=Order, state=Order)\n"
    )
    late = (
        "from durableagents import *\nfrom durableagents import Agent, End, ReplayClass, Undo, tool\n\n"
        "from . import own\nfrom .parts import made, other\nfrom .shapes import Done, Order\n"
        "from .tools import refund\n\n"
        f"HOURS = 8\n\n\n{DECLARED[declared]}"
    )
    own = "def tool(function):\n    return function\n"
    agents = SHOP["agents"].replace("import shop.late\n", "")
    agents = agents.replace("    shop.late.at_night()\n", "    from .late import back\n    print(back)\n")
    also = {"agents": agents, "late": late, "parts": parts, "own": own}
    assert load(also=also).fingerprint() == load(also=also, first="shop.late").fingerprint()


def test_somebodys_own_function_that_is_called_as_ours_are_counts(load: Load) -> None:
    """It declares nothing: its behaviour is the agent's code."""
    own = {
        "words": "def tool(function):\n    return function\n\n\n@tool\ndef is_long(text):\n    return len(text) > 12\n"
    }
    before, after = load(also=own), load("words", "> 12", "> 13", also=own)
    assert before.fingerprint() != after.fingerprint()
    assert "helper is_long() in shop/words.py: 12 → 13" in join_differences(differences(before.parts(), after.parts()))


def test_names_that_lead_round_in_circles_and_long_chains_of_them_come_to_an_end(load: Load) -> None:
    stars = "from .a import *\nfrom .b import *\nfrom .c import *\n"
    also = {name: f"{stars}def of_{name}():\n    return nowhere()\n" for name in "abc"}
    also["a"] += "x0 = x1\nx1 = x0\n" + "".join(f"y{n} = y{n + 1}\n" for n in range(1500)) + "y1500 = 3\n"
    also["tax"] = SHOP["tax"].replace("return 2 if", "from .a import nowhere, x0, y0\n    return x0 + y0 if")
    assert load(also=also).fingerprint() != load("a", "y1500 = 3", "y1500 = 4", also=also).fingerprint()


def test_a_long_chain_of_helpers_and_one_in_a_circle_are_followed(load: Load) -> None:
    chain = (
        "".join(f"def h{n}():\n    return h{n + 1}()\n\n\n" for n in range(1500)) + "def h1500():\n    return h0()\n"
    )
    also = {"chain": chain, "tax": SHOP["tax"].replace("return 2 if", "from .chain import h0\n    return h0() if")}
    before, after = load(also=also), load("chain", "return h0()", "return h1()", also=also)
    assert before.fingerprint() != after.fingerprint()
    assert "helper h1500() in shop/chain.py" in join_differences(differences(before.parts(), after.parts()))


def test_a_module_handed_on_as_a_whole_counts_as_a_whole(load: Load) -> None:
    also = {"tax": SHOP["tax"].replace("words.is_long('x')", "getattr(words, 'is_' + 'long')('x')")}
    assert load(also=also).fingerprint() != load("words", "> 12", "> 13", also=also).fingerprint()


def test_libraries_and_what_agents_are_written_with_are_not_followed(load: Load) -> None:
    every = load().parts()["code"]
    assert every and {key.partition(".")[0] for key in every} == {"shop"}
    assert home_of(json.loads) is None and home_of(dict) is None
    from durableagents.demo import vendor_onboard

    demo = vendor_onboard.agent.parts()["code"]
    assert {key.split(".")[1] for key in demo} == {"demo"} and "durableagents.demo.tools.FINANCE_FROM" in demo


def test_a_broken_neighbour_or_one_that_is_gone_keeps_nobody_from_a_fingerprint(load: Load) -> None:
    for lost in ("from .nowhere import x", "from .broken import x", "from ...above import x"):
        tax = SHOP["tax"].replace("return 2 if", f"{lost}\n    return x if")
        assert load(also={"tax": tax, "broken": "def x(:\n"}).fingerprint().startswith("3:")


def test_texts_in_code_are_no_part_of_what_is_kept(load: Load) -> None:
    also = {"limits": SHOP["limits"].replace('"us"', '"sk-very-secret"')}
    assert "sk-very-secret" not in json.dumps(load(also=also).parts())


def test_the_number_for_a_changed_agent_is_the_next_patch_that_nobody_has() -> None:
    assert next_version("1.0.0") == "1.0.1" and next_version("2.9.9", ["2.9.10"]) == "2.9.11"


def test_parts_that_nobody_has_words_for_are_named_all_the_same() -> None:
    assert differences({"x": {"y": 1}}, {"x": {"y": 2}}) == ["agent: x changed"]
    assert differences({"tools": {"t": {"odd": 1}}}, {"tools": {"t": {"odd": 2}}}) == ["t: odd changed"]
    assert differences({}, {}) == []
    assert join_differences(f"{n}" for n in range(14)).endswith("11; and 2 more")
