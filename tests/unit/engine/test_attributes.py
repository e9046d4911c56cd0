from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableagents import Agent, Context, Date, End, Flag, Keyword, Keywords, Money, Number
from ledger import events as e
from runs.engine.attributes import KINDS, MAX_ATTRIBUTES, MAX_CHARACTERS, BadAttributes, of_words, setting
from runs.engine.errors import DefinitionError, MisusedContext
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.world import Asked, Item, Notes, Outside, Toolbox, agent_of

ALL = {"customer": Keyword(), "tags": Keywords(), "score": Number(), "amount": Money(), "due": Date(), "urgent": Flag()}


def told(*events: e.AttributesSet) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event in events:
        found |= {name: [] for name in event.named}
        for name, value in zip(event.names, event.values, strict=True):
            found[name].append(value)
    return {name: values for name, values in found.items() if values}


@each_case(
    ("name", "given", "text"),
    [
        ("customer", "ACME & Söhne", "ACME & Söhne"),
        ("score", 3, "3"),
        ("score", -0.0, "0"),
        ("score", 1e-07, "0.0000001"),
        ("score", "2.50", "2.5"),
        ("score", Decimal("100"), "100"),
        ("amount", "12.50", "12500000"),
        ("amount", 7, "7000000"),
        ("amount", Decimal("-0.000001"), "-1"),
        ("due", date(2026, 3, 31), "2026-03-31"),
        ("due", "2024-02-29", "2024-02-29"),
        ("urgent", False, "false"),
    ],
)
def test_one_value_has_one_text_however_it_was_written(name: str, given: Any, text: str) -> None:
    assert told(setting(ALL, {name: given}, by="x")) == {name: [text]}


@each_case(
    ("name", "given"),
    [
        ("customer", 7),
        ("customer", ""),
        ("customer", "  "),
        ("customer", "x" * (MAX_CHARACTERS + 1)),
        ("customer", "a\x00b"),
        ("customer", "two\nlines"),
        ("customer", "ACME\u200b"),
        ("customer", "\u202eEMCA"),
        ("customer", "\ufeffACME"),
        ("tags", ["late", "a\tb"]),
        ("tags", ["\U000e0041"]),
        ("customer", "\ud800"),
        ("customer", ["a"]),
        ("tags", "a"),
        ("tags", ["a", 1]),
        ("tags", ["x"] * 33),
        ("tags", {"a"}),
        ("tags", {"a": 1}),
        ("score", True),
        ("score", "1e5"),
        ("score", "ten"),
        ("score", float("nan")),
        ("score", float("inf")),
        ("score", 10**15),
        ("score", "0.0000000001"),
        ("score", 10**4000),
        ("score", "٣"),
        ("score", Decimal("NaN")),
        ("score", Decimal("1e999999")),
        ("amount", 1.5),
        ("amount", "1.0000001"),
        ("amount", "$5"),
        ("amount", "5 EUR"),
        ("amount", 10**13),
        ("due", "2026-02-30"),
        ("due", "31.3.2026"),
        ("due", datetime(2026, 3, 31, tzinfo=UTC)),
        ("due", 20260331),
        ("urgent", "true"),
        ("urgent", 1),
        ("nobody", "x"),
        ("Customer", "ACME"),
        ("customer; --", "x"),
    ],
)
def test_what_is_no_such_thing_is_refused_by_name(name: str, given: Any) -> None:
    with pytest.raises(BadAttributes) as refused:
        setting(ALL, {"urgent": True, name: given}, by="x")
    assert [problem[0] for problem in refused.value.problems] == [name]
    assert all(refused.value.problems[0])


def test_all_that_is_wrong_is_named_at_once_and_the_known_names_are_told() -> None:
    with pytest.raises(BadAttributes) as refused:
        setting(ALL, {"score": "ten", "due": 1, "who": 2, "customer": "fine"}, by="x")
    assert [name for name, *_ in refused.value.problems] == ["due", "score", "who"]
    assert "customer" in refused.value.problems[2][2]


@given(
    st.sampled_from(sorted(ALL)), st.one_of(st.text(), st.floats(), st.integers(), st.decimals(), st.dates(), st.none())
)
def test_whatever_is_given_is_set_or_refused_and_what_is_shown_is_set_to_the_same(name: str, value: Any) -> None:
    try:
        event = setting(ALL, {name: value}, by="x")
    except BadAttributes:
        return
    texts = told(event).get(name)
    assert e.decode(e.encode_clear(event)) == event
    if texts:
        visible = ALL[name].shown(texts)
        assert ALL[name].texts(visible) == texts or name == "score", (value, visible)


def test_what_is_typed_is_what_the_api_takes() -> None:
    typed = {"customer": "ACME", "score": "2.5", "amount": "$3", "due": "2026-01-01", "urgent": "True"}
    read = {name: ALL[name].text(of_words(ALL[name], words)) for name, words in typed.items()}
    assert read == {"customer": "ACME", "score": "2.5", "amount": "3000000", "due": "2026-01-01", "urgent": "true"}
    assert all(kind.text(of_words(kind, kind.like)) for kind in KINDS.values())


@each_case(
    "wrong",
    [
        {"Customer": Keyword()},
        {"x y": Keyword()},
        {"and": Flag()},
        {"created_at": Date()},
        {"n": Keyword},
        {"n": "keyword"},
        {7: Keyword()},
        {f"n{i}": Flag() for i in range(MAX_ATTRIBUTES + 1)},
        ["customer"],
    ],
)
def test_a_declaration_that_is_none_is_refused_when_the_agent_is_made(wrong: Any) -> None:
    with pytest.raises(DefinitionError):
        Agent("wrong-one", "1.0.0", input=Asked, state=Notes, attributes=wrong)


def test_an_agent_without_any_is_the_one_it_was_and_a_declaration_is_part_of_the_version() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End()

    plain, also = agent_of(node), agent_of(node, attributes={})
    declared, titled = agent_of(node, attributes={"score": Number()}), agent_of(node, attributes={"score": Number("S")})
    other = agent_of(node, attributes={"score": Money()})
    assert "attributes" not in plain.parts() and plain.fingerprint() == also.fingerprint()
    assert declared.fingerprint() == titled.fingerprint()
    assert len({plain.fingerprint(), declared.fingerprint(), other.fingerprint()}) == 3


async def test_a_step_sets_once_whatever_dies_and_a_replay_sets_nothing_again(tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.set_attributes(customer="ACME", tags=["a", "b"], score=1)
        await ctx.call(tools.order, Item(name="a"))
        await ctx.set_attributes(score=2, tags=None)
        await ctx.sleep(0)
        return End()

    kills = [("CP1", "order"), ("CP2", "order"), ("CP6", "order"), ("CP8", "")]
    story = Story(agent_of(node, tools=tools.all(), attributes=ALL), kill_at=kills)
    assert await story.settle() == "completed" and story.kill_at == []
    found = story.events(e.AttributesSet)
    assert [event.slot for event in found] == ["0.1/1", "0.1/3"] and [event.by for event in found] == ["agent"] * 2
    assert told(*found) == {"customer": ["ACME"], "score": ["2"]}


async def test_what_can_not_be_set_is_the_nodes_mistake_and_writes_nothing() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.set_attributes(customer="ACME", score="many", who="me")
        except MisusedContext as error:
            await ctx.set_attributes(customer="after")
            return End(str(error))
        return End()

    story = Story(agent_of(node, attributes=ALL))
    assert await story.settle() == "completed"
    assert "score is not a number" in story.output and "who is not an attribute" in story.output
    assert [event.values for event in story.events(e.AttributesSet)] == [["after"]]


async def test_other_values_at_the_same_place_are_another_call() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.set_attributes(score=values.pop(0))
        await ctx.sleep(0)
        return End()

    values = [1, 2, 2]
    story = Story(agent_of(node, attributes=ALL))
    assert await story.drive() == "parked" and await story.drive() == "operator"
    (stop,) = story.events(e.OperatorNeeded)
    assert {"score": 1} in stop.payload["recorded"].values() and {"score": 2} in stop.payload["now"].values()


async def test_branches_set_each_its_own(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        async def one(name: str) -> None:
            await ctx.call(tools.order, Item(name=name))
            await ctx.set_attributes(**{name: "here"})

        await ctx.gather(one("left"), one("right"))
        return End()

    both = {"left": Keyword(), "right": Keyword()}
    story = Story(agent_of(node, tools=tools.all(), attributes=both), kill_at=[("CP6", "order"), ("CP2", "order")])
    assert await story.settle() == "completed"
    assert {event.slot for event in story.events(e.AttributesSet)} == {"0.1/1/0/2", "0.1/1/1/2"}
    assert told(*story.events(e.AttributesSet)) == {"left": ["here"], "right": ["here"]}


async def test_a_child_is_found_by_what_its_parent_gave_it() -> None:
    async def work(state: Notes, ctx: Context) -> End:
        return End()

    helper, refused = agent_of(work, attributes=ALL), []

    async def node(state: Notes, ctx: Context) -> End:
        try:
            await ctx.child(helper, Asked(text="x"), attributes={"nobody": 1})
        except MisusedContext as error:
            refused.append(str(error))
        await ctx.child(helper, Asked(text="x"), attributes={"customer": "ACME"})
        return End()

    story = Story(agent_of(node))
    assert await story.drive() == "parked"
    assert "nobody is not an attribute" in refused[0]
    (spec,) = story.run.children.values()
    assert spec.attributes is not None and told(spec.attributes) == {"customer": ["ACME"]}
    assert spec.attributes.by == f"run:{story.run.id}" and spec.attributes.slot is None
