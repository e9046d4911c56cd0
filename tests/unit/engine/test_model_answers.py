from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import date
from itertools import product
from typing import Any

import httpx
import httpx2
import pytest
import requests
import urllib3
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import BinaryContent, ImageUrl, ToolReturn
from pydantic_ai.models.test import TestModel

from durableagents import Assistant, Context, End, Failure, ModelFailure, ReplayClass, ToolCall, tool
from durableagents.contrib.pydantic_ai import durable
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.budget import Caps
from runs.engine.thinking.answers import is_not_connected
from runs.engine.thinking.request import real_model
from tests.integration.demo.provider import Call, Provider, Raw, Say, error_events, tools_of
from tests.tiers import sample
from tests.unit.engine.story import Story
from tests.world import IN_PLACE, Done, Item, Notes, agent_of

UNSAFE = ReplayClass.UNSAFE_ON_REPLAY
OPENAI, ANTHROPIC = "openai-chat:neighbour", "anthropic:neighbour"
ASSISTANT, AGENT, AGENT_OF_TEXTS, MODEL = KINDS = ("assistant", "agent", "agent of texts", "ctx.model")
IMAGE = BinaryContent(b"\x89PNG\r\n\x1a\n\xff\xfe", media_type="image/png")
PDF = BinaryContent(b"%PDF-1.7 \xff", media_type="application/pdf")


class Photo(BaseModel):
    of: str
    image: BinaryContent


@tool(replay_class=UNSAFE)
async def look(args: Item, call: ToolCall) -> Done:
    """Look it up."""
    return Done(ref=f"seen {args.name}")


@tool(replay_class=UNSAFE)
async def photograph(args: Item, call: ToolCall) -> Photo:
    """Take a photo."""
    return Photo(of=args.name, image=IMAGE)


def thinking(
    kind: str, models: list[str], *, returns: Any = "seen", prompt: Any = "Do it.", fails: bool = False
) -> Agent:
    """Return an agent that thinks once in one of the possible ways, with a tool `look`."""
    inner: PydanticAgent[None, Any] | None = None
    if kind in (AGENT, AGENT_OF_TEXTS):
        inner = PydanticAgent(TestModel(), output_type=Done if kind == AGENT else str, name="whole", retries=3)

        @inner.tool_plain(name="look")
        def look_up(name: str, amount: int = 1, on: date | None = None) -> Any:
            return returns

        assistant: Assistant = durable(inner, tools={"look": UNSAFE}, models=models)
    else:
        assistant = Assistant("mind", "Think.", Done, tools=[look, photograph], models=models)

    async def node(state: Notes, ctx: Context) -> End:
        try:
            if kind == MODEL:
                return End(await ctx.model(assistant, prompt))
            given = await ctx.think(inner or assistant, prompt)
            return End(given if isinstance(given, str) else given.ref)
        except ModelFailure as failure:
            if fails:
                raise Failure(failure.message, code=failure.code) from failure
            return End([failure.code, failure.message])

    return agent_of(node, assistants=[assistant])


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    made = Provider()
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", made.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", made.root)
    yield made
    made.close()


def well(body: dict[str, Any]) -> Say:
    if "final_result" in tools_of(body):
        return Say(calls=(Call("final_result", json.dumps({"ref": "done"}), "call_end"),))
    return Say("done")


def answering(provider: Provider, *first: Say | Raw) -> None:
    left = list(first)
    provider.script = lambda body: left.pop(0) if left else well(body)
    provider.requests.clear()


async def settled(agent: Agent, is_watched: bool, **more: Any) -> Story:
    story = Story(agent, retry=IN_PLACE, heard=[] if is_watched else None, **more)
    await story.settle()
    return story


def end_of(story: Story) -> Any:
    last = story.run.events[-1]
    return last.payload if last.KIND == "RunCompleted" else (last.KIND, last.payload)


# --- no answers -------------------------------------------------------------------------------------------------------

BUSY = {"code": 429, "message": "slow down", "type": "rate_limit_error"}
BARE = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}


def outages(model: str) -> dict[str, Say | Raw]:
    """Return answers, also with status 200, after which the request is repeated."""

    def half(ends: str) -> Say:
        return Say("Half of an answer", ends=ends)

    error = list(error_events(BUSY))[model == ANTHROPIC]
    return {
        "HTML": Raw("<html>busy</html>", "text/html"),
        "HTML that is called JSON": Raw("<html>busy</html>"),
        "blanks": Raw("   "),
        "an error object": Raw(json.dumps({"error": BUSY})),
        "no choices": Raw(json.dumps({**BARE, "choices": [], "content": None})),
        "null choices": Raw(json.dumps({**BARE, "choices": None, "content": None})),
        "an end before the finish reason": half(""),
        "HTML in the middle": half("<html>bad gateway</html>"),
        "a comment and an error event": half(f": keep-alive\n\n{error}"),
        "an empty error event": half("event: error\ndata: {}\n\n"),
        "a broken chunk": half("data: {\n\n"),
        "a torn connection": Raw('{"id": ', is_torn=True),
        "429": Raw("{}", status=429),
        "529": Raw("{}", status=529),
    }


def test_a_providers_client_asks_once_and_leaves_the_rest_to_us(provider: Provider) -> None:
    assert [real_model(name).client.max_retries for name in (OPENAI, ANTHROPIC)] == [0, 0]  # type: ignore[attr-defined]


async def test_what_is_no_answer_is_asked_again_whether_anybody_watches_or_not(provider: Provider) -> None:
    wrong = []
    # Every third case: each outage still meets each model, watched and unwatched, and each kind.
    for model, is_watched, kind, name in sample(product((OPENAI, ANTHROPIC), (False, True), KINDS, outages(OPENAI)), 5):
        outage = outages(model)[name]
        answering(provider, outage, outage)
        story = await settled(thinking(kind, [model]), is_watched)
        if (end_of(story), len(provider.requests), provider.refused) != ("done", 3, []):
            wrong.append((model, is_watched, kind, name, len(provider.requests), provider.refused, end_of(story)))
    assert not wrong, "\n".join(map(str, wrong))


async def test_a_model_that_gives_no_answers_is_passed_over_for_the_next(provider: Provider) -> None:
    wrong = []
    for is_watched, (name, outage) in product((False, True), outages(OPENAI).items()):
        provider.script = lambda body, bad=outage: bad if body["model"] == "bad" else well(body)  # type: ignore[misc]
        agent = thinking(ASSISTANT, ["openai-chat:bad", ANTHROPIC])
        story = Story(agent, heard=[] if is_watched else None)
        if (await story.drive(), story.events(e.ModelRouted)[-1].model) != ("completed", ANTHROPIC):
            wrong.append((is_watched, name, story.kinds()))
    assert not wrong, "\n".join(map(str, wrong))


async def test_a_provider_that_refuses_to_stream_is_asked_without(provider: Provider) -> None:
    provider.script = lambda body: Raw("{}", status=400) if body.get("stream") else well(body)
    for model, kind in product((OPENAI, ANTHROPIC), KINDS):
        assert end_of(await settled(thinking(kind, [model]), True)) == "done"


async def test_what_watchers_hear_is_the_answer_and_a_text_is_asked_for_without_tools(provider: Provider) -> None:
    for model, is_watched in product((OPENAI, ANTHROPIC), (False, True)):
        answering(provider, Say("All is well."))
        story = await settled(thinking(MODEL, [model]), is_watched)
        assert story.output == "All is well." and "".join(story.heard or ["All is well."]) == story.output
        (question,) = provider.requests
        assert bool(question.get("stream")) is is_watched and not {"tools", "tool_choice"} & set(question)


async def test_unreached_provider_costs_nothing(monkeypatch: pytest.MonkeyPatch, provider: Provider) -> None:
    provider.close()
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://no-such-host.invalid")
    for model, is_watched in product((OPENAI, ANTHROPIC), (False, True)):
        story = Story(thinking(ASSISTANT, [model]), caps=Caps(model_calls=2), heard=[] if is_watched else None)
        for _ in range(4):
            assert await story.drive() == "parked"
            ((wait_id, _wait),) = story.waiting("timer")
            story.run.resolve(wait_id, "fired")
        assert (story.run.used.model_calls, story.run.used.tokens_in) == (0, 0)


CLIENTS: dict[str, Callable[[str], Any]] = {
    "httpx": httpx.get,
    "httpx2": httpx2.get,
    "requests": requests.get,
    "urllib3": lambda url: urllib3.PoolManager(retries=False).request("GET", url),
    "asyncio": lambda url: asyncio.run(asyncio.open_connection(url.split("//")[1].split(":")[0], 9)),
}


def test_every_client_library_s_word_for_a_connection_that_was_never_opened_is_known() -> None:
    wrong = []
    for (name, get), host in product(CLIENTS.items(), ("127.0.0.1:9", "no-such-host.invalid:9")):
        with pytest.raises(Exception) as caught:
            get(f"http://{host}")
        if not is_not_connected(caught.value):
            wrong.append((name, host, repr(caught.value)))
    assert not wrong, "\n".join(map(str, wrong))
    assert not is_not_connected(httpx2.ReadTimeout("sent, and no answer")) and not is_not_connected(
        ConnectionResetError()
    )


# --- useless answers --------------------------------------------------------------------------------------------------

NAMED = '{"name": "a"}'


def called(*calls: tuple[Any, Any, Any]) -> Say:
    return Say(calls=tuple(Call(name, arguments, id_) for name, arguments, id_ in calls))


# The model's first answer; what an assistant and an agent with a typed output tell it (empty: the calls are made); the
# number of calls made.
USELESS: list[tuple[str, list[Say], str, int]] = [
    ("half a pair in arguments", [called(("look", '{"name": "a\\ud83d"}', "c"))], "escape|Invalid JSON", 0),
    ("half a pair in a result", [called(("final_result", '{"ref": "a\\ud83d"}', "c"))], "escape|Invalid JSON", 0),
    ("half a pair in a text", [Say("a \ud83d b")], "final_result|json_invalid", 0),
    ("no words and no calls", [Say(None)], "final_result|", 0),
    ("an empty text", [Say("")], "final_result|", 0),
    ("an empty id", [called(("look", NAMED, ""))], "", 1),
    ("a null id", [called(("look", NAMED, None))], "", 1),
    ("the same id twice", [called(("look", NAMED, "c"), ("look", NAMED, "c"))], "", 2),
    ("the same id in two turns", [called(("look", NAMED, "c")), called(("look", NAMED, "c"))], "", 2),
    ("an empty name", [called(("", NAMED, "c"))], "no tool|Unknown tool", 0),
    ("a null name", [called((None, NAMED, "c"))], "no tool|Unknown tool|final_result|include your response", 0),
    ("a name nobody may send", [called(("look!", NAMED, "c"))], "no tool|Unknown tool", 0),
    ("an unknown name", [called(("launch", NAMED, "c"))], "no tool|Unknown tool", 0),
    ("null arguments", [called(("look", None, "c"))], "ield required|valid dictionary|be an object", 0),
    ("empty arguments", [called(("look", "", "c"))], "ield required", 0),
    ("arguments that are no JSON", [called(("look", "{no", "c"))], "can't be used|Invalid JSON|ield required", 0),
    ("arguments that are a list", [called(("look", "[1]", "c"))], "valid dictionary|valid dict|object", 0),
    ("a field too few", [called(("look", '{"amount": 1}', "c"))], "ield required", 0),
    (
        "a number that is none",
        [called(("look", '{"name": "a", "amount": NaN}', "c"))],
        "can't be used|Invalid JSON|valid integer",
        0,
    ),
    (
        "a number too large",
        [called(("look", '{"name": "a", "amount": 99999999999999999999}', "c"))],
        "can't be used",
        0,
    ),
    ("a date", [called(("look", '{"name": "a", "on": "2026-11-28"}', "c"))], "", 1),
    ("a NUL", [called(("look", '{"name": "a\\u0000"}', "c"))], "", 1),
]


async def test_answers_of_no_use_are_told_to_the_model_and_the_run_goes_on(provider: Provider) -> None:
    wrong = []
    for model, is_watched, kind, useless in sample(
        product((OPENAI, ANTHROPIC), (False, True), (ASSISTANT, AGENT), USELESS), 3
    ):
        name, first, result, calls = useless
        answering(provider, *first)
        story = await settled(thinking(kind, [model]), is_watched)
        last = json.dumps(provider.requests[-1]["messages"][-1], ensure_ascii=False)
        is_told = any(words in last for words in result.split("|"))
        found = end_of(story), len(provider.requests), len(story.events(e.ToolReturned)), is_told, provider.refused
        if found != ("done", len(first) + 1, calls, True, []):
            wrong.append((model, is_watched, kind, name, *found, last))
    assert not wrong, "\n".join(map(str, wrong))


async def test_a_text_with_half_a_pair_is_an_answer_with_a_replacement(provider: Provider) -> None:
    for model, is_watched, kind in product((OPENAI, ANTHROPIC), (False, True), (AGENT_OF_TEXTS, MODEL)):
        answering(provider, Say("a \ud83d b"))
        assert end_of(await settled(thinking(kind, [model]), is_watched)) == "a \ufffd b"


async def test_invalid_answers_fail_the_run_and_a_retry_asks_again(provider: Provider) -> None:
    """The calls made before are kept."""
    bad = called(("look", NAMED, "b"), ("final_result", '{"ref": "a\\ud83d"}', "c"))
    for model, is_watched, kind in product((OPENAI, ANTHROPIC), (False, True), (ASSISTANT, AGENT)):
        answering(provider, called(("look", NAMED, "a")), *[called(("final_result", "{no", "c"))] * 4)
        story = await settled(thinking(kind, [model], fails=True), is_watched)
        assert story.failure.code == "no_valid_answer" and len(provider.requests) == 5
        story.retry_run()
        answering(provider, bad)
        await story.settle()
        assert end_of(story) == "done" and len(provider.requests) == 2 and provider.refused == []
        assert len(story.events(e.ToolReturned)) == 2


# --- images and files -------------------------------------------------------------------------------------------------


def images_in(body: dict[str, Any]) -> int:
    text = json.dumps(body["messages"])
    return text.count('"type": "image_url"') + text.count('"type": "image"')


RETURNED: list[tuple[str, Any, int, str]] = [
    ("an image", IMAGE, 1, ""),
    ("a list with an image", ["Seen.", IMAGE], 1, "Seen."),
    ("a ToolReturn with an image", ToolReturn("Seen.", content=["From above:", IMAGE]), 1, "From above:"),
    ("a ToolReturn of an image", ToolReturn(IMAGE), 1, ""),
    ("a reference", ImageUrl("https://files.example/a.png"), 1, "https://files.example/a.png"),
    ("a document", PDF, 0, PDF.base64),
    ("bytes", b"\xff\xfe", 0, "__4="),
    ("bytes in a mapping", {"raw": b"\xff\xfe"}, 0, "__4="),
    ("a large number", 2**60, 0, str(2**60)),
    ("an object", object(), 0, "can't be recorded"),
    ("a set", {1, 2}, 0, "can't be recorded"),
    ("half a pair", "a\ud83d", 0, "can't be recorded"),
    ("more than a record takes", BinaryContent(b"x" * 50_500_000, media_type="image/png"), 0, "may have 67108864"),
]


async def test_files_of_prompts_and_tools_reach_the_model_live_and_after_a_resume(provider: Provider) -> None:
    """The worker dies before the model gets the result, and again before the next request."""
    wrong = []
    deaths = [("CP6", "look"), ("CP2", "model")]
    for model, kill_at, (name, returned, images, words) in sample(
        product((OPENAI, ANTHROPIC), ([], deaths), RETURNED), 3
    ):
        answering(provider, called(("look", NAMED, "c")), called(("launch", NAMED, "d")))
        agent = thinking(AGENT, [model], returns=returned, prompt=["What is this?", IMAGE])
        story = await settled(agent, False, kill_at=[*kill_at])
        last = provider.requests[-1]
        found = end_of(story), images_in(last), len(story.events(e.ToolReturned)), provider.refused
        if found != ("done", 1 + images, 1, []) or words not in json.dumps(last):
            wrong.append((model, name, kill_at, *found, json.dumps(last)[:2000]))
    assert not wrong, "\n".join(map(str, wrong))


async def test_files_of_an_assistant_s_prompt_and_tools_reach_the_model(provider: Provider) -> None:
    for model, is_watched in product((OPENAI, ANTHROPIC), (False, True)):
        for kind, first in ((ASSISTANT, [called(("photograph", NAMED, "c"))]), (MODEL, [])):
            answering(provider, *first)
            agent = thinking(kind, [model], prompt=["What is this?", IMAGE, PDF])
            story = await settled(agent, is_watched, kill_at=[("CP6", "photograph"), ("CP2", "model")])
            assert end_of(story) == "done" and provider.refused == []
            assert images_in(provider.requests[-1]) == 1 + len(first)
            assert PDF.base64 in json.dumps(provider.requests[-1])
