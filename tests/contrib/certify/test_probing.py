"""A probe proves whether a system honours idempotency keys, or reports what it saw."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pydantic import BaseModel

from durableagents import (
    Agent,
    BusinessFailure,
    Context,
    DidNotHappen,
    End,
    Gate,
    Happened,
    KeyRejected,
    NotSent,
    Pending,
    ReplayClass,
    ToolCall,
    TransportError,
    tool,
)
from durableagents.contrib.certify import certificates, probing
from durableagents.contrib.certify.models import Probe
from durableagents.contrib.certify.probing import ProbeRequest
from ledger.actors import Actor
from ledger.models import ActRecord
from runs import failpoints
from runs.engine.agents import registry
from runs.engine.certification import ProbeVerdict
from runs.engine.tools import Tool
from tests.world import only_for_now

pytestmark = pytest.mark.django_db
SHELL = Actor("os", "olga", role="operator", auth="shell")
KEYED = ReplayClass.IDEMPOTENT_WITH_KEY


class Order(BaseModel):
    item: str
    amount: int = 1


class Placed(BaseModel):
    number: str
    served: int = 0


class Shop:
    """A system under test; `manner` is how it treats a known key."""

    def __init__(self, manner: str = "honours") -> None:
        self.manner = manner
        self.effects: list[tuple[str, str, int]] = []
        self.calls: list[str] = []
        self.troubles: list[Exception] = []

    def order(self, args: Order, call: ToolCall) -> Placed:
        assert call.key is not None
        self.calls.append(call.key)
        if self.troubles:
            raise self.troubles.pop(0)
        known = [n for n, (key, *_) in enumerate(self.effects) if key == call.key]
        if known and self.manner == "honours":
            if self.effects[known[0]][1:] != (args.item, args.amount):
                raise KeyRejected("used with another body")
            return Placed(number=f"N-{known[0]}", served=len(self.calls))
        if known and self.manner == "refuses":
            raise BusinessFailure("there is such an order already")
        if self.manner == "no body" and known:
            return Placed(number=f"N-{known[0]}")
        self.effects.append((call.key, args.item, args.amount))
        if self.manner == "echoes":
            return Placed(number=args.item)
        return Placed(number=f"N-{len(self.effects) - 1}", served=0 if self.manner == "no body" else len(self.calls))


def agent_with(shop: Shop, name: str = "shopper", **more: Any) -> Tool:
    given: dict[str, Any] = {"replay_class": KEYED, "external_id": "number", "timeout": 5} | more

    async def place_order(args: Order, call: ToolCall) -> Placed:
        return shop.order(args, call)

    made = tool(**given)(place_order)
    agent = Agent(name, "1.0.0", input=Order, state=Order, tools=[made])

    @agent.node(start=True)
    async def buy(state: Order, ctx: Context) -> End:
        return End((await ctx.call(made, state)).number)

    return made


@pytest.fixture(autouse=True)
def _agents() -> Iterator[None]:
    with only_for_now():
        yield


def probe(**more: Any) -> tuple[Probe | None, Any]:
    probe_request = ProbeRequest("place_order", more.pop("agent", ""), more.pop("input", {"item": "chair"}), **more)
    return probing.probe(probing.prepare(probe_request), by=SHELL, pause=0.0)


def standing(made: Tool, elapsed: float = 0.0) -> ProbeVerdict:
    result = certificates.newest_result(certificates.read_results(), "shopper", made)
    return certificates.standing_of(result, made, elapsed=elapsed)


# --- verdicts ---


def test_one_effect_for_two_calls_is_a_certificate() -> None:
    shop = Shop()
    made = agent_with(shop)
    assert standing(made).word == "not_probed"
    row, seen = probe(conflict={"item": "table"})
    assert row is not None and row.verdict == "honours_keys" and "N-0" in row.told
    assert seen.calls["conflict"].outcome == "key rejected"
    assert len(set(shop.calls)) == 1 and shop.calls[0].startswith("probe-") and len(shop.effects) == 1
    assert standing(made).word == "certified" and (row.expires_at - row.at).days == 90
    assert row.evidence["calls"]["first"]["digest"] != "" and row.by == "os:olga"


def test_two_effects_under_one_key_are_found_and_outlast_a_change_of_the_tool() -> None:
    shop = Shop("ignores")
    made = agent_with(shop)
    row, _ = probe()
    assert row is not None and row.verdict == "ignores_keys" and "N-0 and N-1" in row.told
    assert standing(made).word == "ignores_keys"
    registry.remove("shopper@1.0.0")
    changed = agent_with(shop, timeout=6)
    now = standing(changed)
    assert (now.word, now.found, now.is_unsafe, now.is_certified) == ("changed", "ignores_keys", True, False)


def test_the_same_answer_twice_proves_nothing_where_nothing_in_it_names_the_effect() -> None:
    """Neither an echo of the request nor an answer without an id."""
    made = agent_with(Shop("echoes"))
    row, _ = probe()
    assert row is not None and row.verdict == "unclear" and "--control" in row.told and standing(made).word == "unclear"
    row, _ = probe(has_control=True)
    assert row is not None and row.verdict == "unclear", "another effect has the same name"


def test_a_control_under_another_key_shows_that_effects_differ() -> None:
    shop = Shop("no body")
    made = agent_with(shop, external_id=None)
    assert probe()[1].verdict == "unclear" and standing(made).word == "unclear"
    row, seen = probe(has_control=True)
    assert row is not None and row.verdict == "honours_keys" and len(seen.calls) == 3
    assert standing(made).word == "certified", "the newest counts"


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (Happened(Placed(number="N-0")), "honours_keys"),
        (None, "honours_keys"),
        (DidNotHappen(), "hook_denies"),
        (Happened(Placed(number="N-7")), "hook_denies"),
    ],
)
def test_its_hook_is_asked_whether_it_finds_what_was_done(said: Any, verdict: str) -> None:
    async def ask(args: Order, call: ToolCall) -> Any:
        return said

    made = agent_with(Shop(), reconcile=ask)
    row, _ = probe()
    assert row is not None and row.verdict == verdict
    assert standing(made).word == ("certified" if verdict == "honours_keys" else "hook_denies")


def test_a_call_that_answers_later_is_compared_by_its_receipt() -> None:
    taken: list[str] = []

    async def place_order(args: Order, call: ToolCall) -> Pending:
        assert call.callback_url is not None and call.key is not None and call.callback_url.endswith(call.key)
        taken.append(call.key)
        return Pending(receipt={"ticket": list(dict.fromkeys(taken)).index(call.key)})

    made = tool(replay_class=KEYED, answers_later=True, output=Placed, external_id="number")(place_order)
    agent = Agent("later", "1.0.0", input=Order, state=Order, tools=[made])

    @agent.node(start=True)
    async def buy(state: Order, ctx: Context) -> End:
        return End()

    assert probe()[1].verdict == "unclear"
    taken.clear()
    assert probe(has_control=True)[1].verdict == "honours_keys"


@pytest.mark.parametrize("trouble", [TransportError("409: in progress"), NotSent("refused")])
def test_an_other_side_that_is_still_busy_is_asked_again(trouble: Exception) -> None:
    class Busy(Shop):
        def order(self, args: Order, call: ToolCall) -> Placed:
            self.troubles = [trouble] if len(self.calls) == 1 else []
            return super().order(args, call)

    shop = Busy()
    made = agent_with(shop)
    assert probe()[1].verdict == "honours_keys" and standing(made).word == "certified" and len(shop.calls) == 3


def test_one_that_never_answers_the_repeat_leaves_it_open() -> None:
    class Gone(Shop):
        def order(self, args: Order, call: ToolCall) -> Placed:
            self.troubles = [TransportError("gone")] if self.calls else []
            return super().order(args, call)

    made = agent_with(Gone())
    assert probe()[1].verdict == "unclear" and standing(made).word == "unclear"


@pytest.mark.parametrize(
    "trouble",
    [
        BusinessFailure("no"),
        KeyRejected("unknown"),
        NotSent("away"),
        TransportError("gone"),
        ZeroDivisionError("a bug"),
    ],
)
def test_a_first_call_that_comes_to_nothing_says_nothing_and_nothing_more_is_sent(trouble: Exception) -> None:
    shop = Shop()
    shop.troubles = [trouble]
    made = agent_with(shop)
    row, seen = probe()
    assert (
        row is None and len(shop.calls) == 1 and standing(made).word == "not_probed" and "shows nothing" in seen.finding
    )
    assert [x.action for x in ActRecord.objects.order_by("pk")][-2:] == ["probe", "probe_done"]


def test_a_blocking_function_that_hangs_does_not_hold_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def place_order(args: Order, call: ToolCall) -> Placed:
        over.wait(30)
        return Placed(number="N")

    made = tool(replay_class=KEYED, timeout=0.1, external_id="number")(place_order)
    Agent("slow", "1.0.0", input=Order, state=Order, tools=[made])
    began = time.monotonic()
    try:
        assert probe()[0] is None and time.monotonic() - began < 25
    finally:
        over.set()


# --- requirements ---


def test_a_certificate_ends(settings: Any) -> None:
    made = agent_with(Shop())
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"probe_days": 0.2 / 86_400})
    probe()
    assert standing(made, elapsed=0.3).word == "expired"
    time.sleep(0.25)
    now = standing(made)
    assert (now.word, now.found, now.is_certified, now.is_unsafe) == ("expired", "certified", False, False)


def test_a_changed_tool_is_not_certified_any_more_and_one_that_is_back_is() -> None:
    made = agent_with(Shop())
    probe()
    registry.remove("shopper@1.0.0")
    changed = agent_with(Shop(), timeout=6)
    assert standing(changed).word == "changed" and standing(made).word == "certified"


def test_a_row_that_nobody_here_wrote_certifies_nothing() -> None:
    made = agent_with(Shop("ignores"))
    row, _ = probe()
    assert row is not None
    forged = Probe.objects.get(pk=row.pk)
    forged.pk, forged.verdict = None, "honours_keys"
    forged.save(force_insert=True)
    assert standing(made).word == "not_probed"


# --- tools that can't be probed ---


def refusal(**more: Any) -> str:
    with pytest.raises(Exception) as refused:
        probing.prepare(
            ProbeRequest(
                more.pop("tool", "place_order"), more.pop("agent", ""), more.pop("input", {"item": "a"}), **more
            )
        )
    return str(refused.value.detail)  # type: ignore[attr-defined]


def test_what_can_not_be_probed_is_refused_by_name_and_nothing_is_sent() -> None:
    shop = Shop()
    agent_with(shop)
    assert "not a tool of any agent" in refusal(tool="place_ordr")
    assert "There is no agent" in refusal(agent="nobody")
    assert "input item" in refusal(input={"amount": 2}) and "input it" in refusal(input=[1])
    assert "the same body" in refusal(conflict={"item": "a", "amount": 1})
    failpoints.driving("some-run")
    try:
        assert "inside a run" in refusal()
    finally:
        failpoints.driving("")
    agent_with(shop, name="other", timeout=9)
    assert "several agents" in refusal() and probing.find("place_order", "other")[0].name == "other"
    assert shop.calls == [] and not ActRecord.objects.exists() and not Probe.objects.exists()


@pytest.mark.parametrize("replay_class", [ReplayClass.UNSAFE_ON_REPLAY, ReplayClass.PURE])
def test_a_tool_without_a_key_has_nothing_to_probe(replay_class: ReplayClass) -> None:
    agent_with(Shop(), replay_class=replay_class)
    assert "sends no key" in refusal()


def test_people_who_would_be_asked_are_passed_only_on_the_record() -> None:
    agent_with(Shop(), gate=Gate("finance_po", "dear ones", when=lambda args: args.amount > 9))
    assert "needs approval by finance_po" in refusal(input={"item": "a", "amount": 10})
    assert "needs approval by finance_po" in refusal(conflict={"item": "a", "amount": 10})
    row, _ = probe(input={"item": "a", "amount": 10}, is_past_gate=True)
    assert row is not None
    assert ActRecord.objects.get(action="probe").after["past_gate"] == "finance_po"


# --- the command ---


def run(*words: str) -> tuple[str, int]:
    out = io.StringIO()
    try:
        call_command("probe", *words, stdout=out)
    except CommandError as error:
        return f"{out.getvalue()}{error}", error.returncode
    return out.getvalue(), 0


def given(tmp_path: Path, value: Any) -> str:
    path = tmp_path / "input.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def test_the_command_tells_what_it_saw_on_one_page(tmp_path: Path) -> None:
    agent_with(Shop())
    found, code = run("place_order", "--input", given(tmp_path, {"item": "a"}), "--yes")
    assert code == 0 and "REALLY" not in found and "really calls the upstream system" in found
    assert (
        "verdict\thonours keys\ttwo calls under one key had one effect: N-0" in found and "is certified until" in found
    )
    listed, _ = run("--list")
    assert "place_order\tshopper@1.0.0\tcertified\tuntil 20" in listed


def test_the_command_says_by_its_exit_code_that_a_tool_is_not_certified(tmp_path: Path) -> None:
    agent_with(Shop("ignores"))
    found, code = run("place_order", "--input", given(tmp_path, {"item": "a"}), "--yes")
    assert code == 1 and "two effects: N-0 and N-1" in found and found.endswith("Not certified.")
