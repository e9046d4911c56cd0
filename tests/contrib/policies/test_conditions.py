"""A policy's condition is type-checked when written, judged exactly, and strict about unknown values."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from durableagents.contrib.policies.conditions import parse_condition, restore_condition
from durableagents.contrib.policies.judging import Rule, Rulebook
from runs.engine.policy import Asking
from runs.queries.expressions import Misread
from tests.cases import each_case
from tests.unit.engine.policies import rule


class Line(BaseModel):
    total: Decimal
    country: Literal["DE", "FR"] = "DE"


class Order(BaseModel):
    amount: int
    rate: float = 0.1
    note: str | None = None
    urgent: bool = False
    names: list[str] = []
    line: Line | None = None
    anything: dict[str, Any] = {}


SCHEMAS = [("shop@1.0.0", Order.model_json_schema())]
ASKING = Asking("r", "shop", "1.0.0", "order", "pure", "medium", {}, "model", "key:shop", 1_500_000, ("vip", "emea"))


def says(condition: str, arguments: Any = None, **more: Any) -> bool | None:
    found = parse_condition(condition, SCHEMAS)
    again = restore_condition(condition, json.loads(json.dumps(dict(found.kinds))))
    asking = replace(ASKING, arguments=arguments or {}, **more)
    assert found.holds(asking) is again.holds(asking), "a row says the same as what was typed"
    return found.holds(asking)


@each_case(
    ("condition", "arguments", "answer"),
    [
        ("", {}, True),
        ("args.amount > 10", {"amount": 11}, True),
        ("args.amount > 10", {"amount": 10}, False),
        ("args.rate = 0.1", {"rate": 0.1}, True),
        ("args.rate < 0.3", {"rate": 0.1 + 0.2}, False),
        ("args.line.total >= 100.10", {"line": {"total": "100.1"}}, True),
        ("args.line.total > 0.1", {"line": {"total": "0.10000000000000000001"}}, True),
        ('args.note = "a \\"b\\""', {"note": 'a "b"'}, True),
        ("args.note has evil", {"note": "an evil note"}, True),
        ("args.urgent = true", {"urgent": True}, True),
        ("args.urgent != true", {"urgent": False}, True),
        ("args.names has ann", {"names": ["bob", "ann"]}, True),
        ("not args.line.country in (DE, FR)", {"line": {"country": "US"}}, True),
        ("args.note is set", {"note": None}, False),
        ("args.note is set and args.note = x", {}, False),
        ("cost >= 1.5 and cost < 1.500001", {}, True),
        ("tags has vip and requester = key:shop and source = model", {}, True),
        ("risk >= medium and risk < high", {}, True),
        ("class = pure and version = 1.0.0", {}, True),
        # Values that the call doesn't give.
        ("args.amount > 10", {}, None),
        ("args.amount > 10", {"amount": None}, None),
        ("args.amount > 10", {"amount": "many"}, None),
        ("args.amount > 10", {"amount": True}, None),
        ("args.rate > 10", {"rate": float("nan")}, None),
        ("args.note = x", {"note": 5}, None),
        ("args.line.total > 1", {"line": []}, None),
        ("args.names has ann", {"names": ["bob", 5]}, None),
        ("args.names has ann", {"names": "ann"}, None),
        ("not args.amount > 10", {}, None),
        ("args.amount > 10 or args.urgent = true", {"urgent": True}, True),
        ("args.amount > 10 and args.urgent = true", {"urgent": False}, False),
    ],
)
def test_it_says_exactly_that(condition: str, arguments: dict[str, Any], answer: bool | None) -> None:
    assert says(condition, arguments) is answer


@each_case(
    ("condition", "at", "words"),
    [
        ("args.nothing > 1", 1, "isn't an input field"),
        ("cost > 1 and args.note > 1", 24, "a text"),
        ("args.amount > 1e", 15, "isn't a number"),
        ("args.amount > NaN", 15, "isn't a number"),
        ("args.urgent = yes", 15, "yes"),
        ("args.line > 5", 11, "neither"),
        ("args.anything.x = 5", 1, "isn't an input field"),
        ("args.names = ann", 12, "a list"),
        ("risk > huge", 8, "huge"),
        ("class = unsafe", 9, "unsafe"),
        ("args.amount >", 14, "ends too early"),
        ("(cost > 1", 10, "ends too early"),
        ("cost > 1)", 9, "can't have"),
        ("__class__ = 1", 1, "isn't a field of calls"),
        ("run_id = 1", 1, "isn't a field of calls"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(condition: str, at: int, words: str) -> None:
    with pytest.raises(Misread, match=words) as caught:
        parse_condition(condition, SCHEMAS)
    assert caught.value.at == at


def test_a_field_that_two_agents_declare_differently_needs_the_agents_name() -> None:
    class Other(BaseModel):
        amount: str

    with pytest.raises(Misread, match=r"number in shop@1.0.0 and text in other@1.0.0"):
        parse_condition("args.amount > 1", [*SCHEMAS, ("other@1.0.0", Other.model_json_schema())])


@each_case(
    ("schema", "is_number"),
    [
        ({"anyOf": [{"type": "string", "pattern": "^[0-9.]+$"}, {"type": "integer"}]}, True),
        ({"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]}, True),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "boolean"}]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "integer"}]}, False),
    ],
)
def test_a_sum_that_may_come_as_a_text_is_compared_as_a_number(schema: dict[str, Any], is_number: bool) -> None:
    schemas = [("shop@1.0.0", {"properties": {"usd": schema}})]
    with nullcontext() if is_number else pytest.raises(Misread):
        condition = parse_condition("args.usd >= 5000.50", schemas)
        items = [
            condition.holds(replace(ASKING, arguments={"usd": usd})) for usd in (5001, "5000.5", "5000.49", "many")
        ]
        assert items == [True, True, False, None]


def test_what_cant_be_told_counts_for_what_restricts_and_for_nothing_that_allows() -> None:
    kinds = {"args.amount": "number"}
    for effect, matches in (("deny", True), ("require", True), ("allow", False)):
        one: Rule = rule(effect, "args.amount > 10", kinds)
        assert one.matches(replace(ASKING, arguments={"amount": "ten"})) is matches


def test_without_rules_nothing_is_said_and_with_a_problem_everything_is_stopped() -> None:
    assert Rulebook(3).judge(ASKING) is None
    judge = Rulebook(3, problem="it was changed").judge(ASKING)
    assert judge is not None and (judge.effect, judge.problem) == ("deny", "it was changed")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_sums_are_compared_as_they_are_written(total: Decimal) -> None:
    for sign, right in (("=", True), (">=", True), ("<=", True), ("<", False), (">", False), ("!=", False)):
        assert says(f'args.line.total {sign} "{total}"', {"line": {"total": str(total)}}) is right


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(Misread):
        parse_condition(text, SCHEMAS)


@given(st.lists(st.sampled_from(["allow", "require", "deny"]), max_size=6))
def test_the_strictest_of_all_that_match_counts_in_any_order(effects: list[str]) -> None:
    rules = [
        rule(effect, name=f"r{i}", queue=f"q{i}" if effect == "require" else "") for i, effect in enumerate(effects)
    ]
    judge = Rulebook(1, tuple(rules)).judge(ASKING)
    if not effects:
        assert judge is None
        return
    assert judge is not None
    assert judge.effect == next(each for each in ("deny", "require", "allow") if each in effects)
    queues = [each.queue for each in rules if each.effect == "require"]
    assert [each.queue for each in judge.requirements] == (queues if judge.effect == "require" else [])
