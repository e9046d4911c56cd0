from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durableagents import Context, Document, End, Gate, Rejected
from ledger import events as e
from runs.engine.errors import DefinitionError
from runs.engine.gating import documents
from runs.engine.gating.documents import MAX_BYTES, MAX_TEXT_BYTES, PDF, PNG, TEXT, named_in
from tests.cases import each_case
from tests.papers import jpeg, pdf, png, text
from tests.unit.engine.story import Story
from tests.world import Item, Notes, Outside, Toolbox, agent_of


def shown(story: Story) -> list[list[tuple[str, str]]]:
    return [[(each.name, each.digest) for each in named_in(x.payload)] for x in story.events(e.ApprovalRequested)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("", TEXT, "a"), "name=''"),
        ((" a", TEXT, "a"), "name=' a'"),
        (("a/b.txt", TEXT, "a"), "without slashes"),
        (("a\u202efdp.exe", TEXT, "a"), "visible characters"),
        (("a\nb", TEXT, "a"), "one line"),
        (("a" * 121, TEXT, "a"), "120 visible characters"),
        ((7, TEXT, "a"), "name=7"),
        (("a", "text/html", "a"), "'text/html': give one of text/plain"),
        (("a", TEXT, ""), "is empty"),
        (("a", TEXT, b"\xff\xfe"), "not UTF-8 text"),
        (("a", TEXT, "\ud800"), "half a surrogate pair"),
        (("a", TEXT, "x" * (MAX_TEXT_BYTES + 1)), "give a longer one as a PDF"),
        (("a", PDF, "text"), "of type str: give bytes"),
        (("a", PDF, b"hello"), "does not look like application/pdf"),
        (("a", PNG, jpeg().bytes), "does not look like image/png"),
        (("a", PDF, b"%PDF-" + bytes(MAX_BYTES)), f"the limit is {MAX_BYTES}"),
        (("a", PDF, None), "of type NoneType"),
    ],
)
def test_what_can_not_be_shown_is_refused_by_name(given: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ValueError, match="Document") as refused:
        Document(*given)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([text(name=f"{n}.txt") for n in range(11)], "11 are given"),
        ([text(), text("other")], "two are called 'contract.txt'"),
        ([Document(f"{n}.pdf", PDF, b"%PDF-" + bytes(8 * 2**20)) for n in range(3)], "together they have"),
        ([Document(f"{n}.txt", TEXT, "x" * 150_000) for n in range(3)], "the texts together"),
        (text(), "give a list of Document"),
        ("a text", "give a list of Document"),
        ([b"bytes"], "bytes is not a Document"),
    ],
)
async def test_too_many_or_what_is_no_document_fails_the_run_by_name(given: Any, told: str) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.approve("finance_po", title="Sign it", documents=given)).by)

    story = Story(agent_of(node))
    assert await story.drive() == "failed"
    assert told in story.failure.payload["message"] and story.events(e.ApprovalRequested) == []


async def test_the_digest_of_what_is_shown_is_in_the_plan_and_the_bytes_ride_with_the_question() -> None:
    given = [text(), pdf(), png()]

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.approve("finance_po", title="Sign it", documents=given)).by)

    story = Story(agent_of(node))
    assert await story.drive() == "parked"
    (question,) = story.events(e.ApprovalRequested)
    assert question.payload["documents"] == [each.as_json() for each in given]
    assert question.payload["documents"][0]["sha256"] == hashlib.sha256(b"Pay 100 USD to Acme.\n").hexdigest()
    _, wait = story.one_waiting("approval")
    assert wait.gate is not None and wait.gate.contents == {each.digest: each.bytes for each in given}
    story.decide()
    assert await story.drive() == "completed"


async def test_a_plan_without_documents_is_to_the_byte_what_it_was() -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.approve("finance_po", title="Go on?")).by)

    story = Story(agent_of(node))
    assert await story.drive() == "parked"
    assert "documents" not in story.events(e.ApprovalRequested)[0].payload


Asking = Callable[[Context, Toolbox, Any], Any]


async def by_approve(ctx: Context, tools: Toolbox, given: Any) -> Any:
    return await ctx.approve("finance_po", title="Sign it", documents=given)


async def by_call(ctx: Context, tools: Toolbox, given: Any) -> Any:
    return await ctx.call(tools.pay, Item(name="po", amount=5000), documents=given)


async def by_gate(ctx: Context, tools: Toolbox, given: Any) -> Any:
    assert tools.pay.gate is not None
    object.__setattr__(tools.pay.gate, "documents", lambda args: given)
    return await ctx.call(tools.pay, Item(name="po", amount=5000))


async def by_grant(ctx: Context, tools: Toolbox, given: Any) -> Any:
    body = Item(name="po", amount=5000)
    grant = await ctx.approve("finance_po", title="Pay it", tool=tools.pay, body=body, documents=given)
    return await ctx.call(tools.pay, body, grant=grant)


@pytest.mark.parametrize("ask", [by_approve, by_call, by_gate, by_grant])
@pytest.mark.parametrize(
    "second",
    [[text("Pay 900 USD to Mallory.\n")], [text(name="other.txt")], [text(), png()], []],
    ids=["other bytes", "another name", "one more", "none"],
)
async def test_other_bytes_stop_replay(tools: Toolbox, outside: Outside, ask: Asking, second: list[Document]) -> None:
    given = [text()]

    async def node(state: Notes, ctx: Context) -> End:
        await ask(ctx, tools, list(given))
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked"
    story.decide()
    given[:] = second
    assert await story.drive() == "operator"
    found = story.found
    assert found.reason == "non_determinism" and outside.requests == []
    before, now = found.payload["recorded"]["arguments"], found.payload["now"]["arguments"]
    assert before == {"documents": [text().as_json()]} and now == {"documents": [x.as_json() for x in second]}
    ((wait, _),) = story.waiting("operator")
    given[:] = [text()]
    story.run.resolve(wait, "retried")
    assert await story.drive() == "completed"


@pytest.mark.parametrize("ask", [by_approve, by_call, by_gate, by_grant])
async def test_the_same_bytes_again_go_on(tools: Toolbox, outside: Outside, ask: Asking) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ask(ctx, tools, [text(), pdf(1)])
        return End()

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked"
    assert shown(story) == [[("contract.txt", text().digest), ("invoice.pdf", pdf(1).digest)]]
    story.decide()
    assert await story.drive() == "completed"
    assert len(outside.requests) == (0 if ask is by_approve else 1)


async def test_asking_for_a_call_shows_what_the_gate_of_its_tool_makes(tools: Toolbox, outside: Outside) -> None:
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, documents=lambda args: [text(f"Pay {args.amount}.")]))

    async def node(state: Notes, ctx: Context) -> End:
        body = Item(name="po", amount=5000)
        grant = await ctx.approve("finance_po", title="Pay it", tool=pay, body=body)
        return End((await ctx.call(pay, body, grant=grant)).ref)

    story = Story(agent_of(node, tools=[pay]))
    assert await story.drive() == "parked"
    assert shown(story) == [[("contract.txt", text("Pay 5000.").digest)]]
    story.decide()
    assert await story.drive() == "completed" and len(outside.requests) == 1


async def test_a_rejected_one_is_followed_by_another_with_other_bytes(tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> Any:
        try:
            given = [text(f"Pay {100 - len(state.seen)} USD.")]
            return End((await ctx.approve("finance_po", title="Sign it", documents=given)).by)
        except Rejected as no:
            state.seen.append(no.reason)
            return "node"

    story = Story(agent_of(node))
    for _ in range(3):
        assert await story.drive() == "parked"
        story.decide("rejected")
    assert await story.drive() == "parked"
    assert len({digest for ((_, digest),) in shown(story)}) == 4


def failing(args: Any) -> list[Document]:
    raise RuntimeError("no template")


def not_a_list(args: Any) -> Any:
    return text()


@pytest.mark.parametrize(("made", "told"), [(failing, "no template"), (not_a_list, "give a list of Document")])
async def test_broken_document_maker_asks_nobody(tools: Toolbox, outside: Outside, made: Any, told: str) -> None:
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, documents=made))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=5000))).ref)

    story = Story(agent_of(node, tools=[pay]))
    assert await story.drive() == "failed"
    assert "the documents of the gate of pay can't be created" in story.failure.payload["message"]
    assert told in story.failure.payload["message"] and outside.requests == []


async def coroutine(args: Any) -> list[Document]:
    return []


@each_case("declared", [coroutine, [text()], "contract.txt", Document])
def test_a_gate_takes_a_plain_function_for_them(declared: Any) -> None:
    with pytest.raises(DefinitionError, match="documents"):
        Gate("finance_po", "orders", documents=declared)


def test_what_a_gate_shows_is_part_of_the_agents_version(tools: Toolbox) -> None:
    def agent(gate: Gate) -> Any:
        pay = replace(tools.pay, gate=gate)

        async def node(state: Notes, ctx: Context) -> End:
            return End()

        return agent_of(node, tools=[pay], name="one", version="1.0.0")

    plain = Gate("finance_po", "orders")
    some = agent(replace(plain, documents=lambda args: [text("one")])).fingerprint
    assert len({agent(plain).fingerprint, some, agent(replace(plain, documents=failing)).fingerprint}) == 3


@each_case(
    "told",
    [
        {"documents": 7},
        {"documents": [7]},
        {"documents": [{}]},
        {"documents": {"a": 1}},
        {"documents": [text().as_json() | {"media_type": "text/html"}]},
        {"documents": [text().as_json() | {"sha256": None}]},
        {"documents": [text().as_json() | {"size": "1"}]},
    ],
)
def test_a_list_that_can_not_be_read_is_none(told: Any) -> None:
    with pytest.raises(ValueError, match="can't be read"):
        named_in(told)


def test_a_plan_has_as_many_as_it_says() -> None:
    assert named_in({}) == [] == named_in(None)
    assert documents.in_plan(()) == {} and documents.checked([]) == ()
