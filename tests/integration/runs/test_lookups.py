from __future__ import annotations

from typing import Any

import pytest

from durableagents import Context, End, ReplayClass, ToolCall, TransportError, tool
from ledger.actors import Actor
from runs.models import Run, Wait
from runs.queries.doubts import link_of, read, similar_to
from runs.services import reconciling
from tests.cases import each_case
from tests.integration.approvals.setup import somebody
from tests.integration.runs.stage import Stage
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of


def lost(stage: Stage, outside: Outside, link: Any, name: str = "a b", agent: str = "") -> Run:
    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, link=link)
    async def letter(args: Item, call: ToolCall) -> Done:
        return await outside.take_async("letter", args, call)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(letter, Item(name=name))).ref)

    outside.trouble("letter", TransportError("cut"), when="after")
    run = stage.start(agent_of(node, tools=[letter], name=agent))
    assert stage.drive() == "parked"
    return run


def wait_of(run: Run) -> Wait:
    return Wait.objects.get(run=run, kind="reconcile")


def slow(args: Item) -> str:
    while args:  # it never ends: a stopped program ends there
        pass
    return "https://post.example"


def ends(args: Item) -> str:
    raise SystemExit


def reads(args: Item) -> str:
    return f"https://post.example/{Run.objects.count()}"


def broken(args: Item) -> str:
    raise RuntimeError("no such field")


@pytest.mark.parametrize(
    ("link", "url", "host"),
    [
        (
            lambda a: f"https://post.example/?to={a.name.replace(' ', '+')}",
            "https://post.example/?to=a+b",
            "post.example",
        ),
        (lambda a: "http://post.example:8080/x", "http://post.example:8080/x", "post.example:8080"),
        (lambda a: None, None, None),
        (lambda a: "javascript:alert(1)", None, None),
        (broken, None, None),
        (slow, None, None),
        (ends, None, None),
        (reads, None, None),
        (lambda a: "https://[2001:db8::1]/x", "https://[2001:db8::1]/x", "2001:db8::1"),
        (lambda a: "http://192.0.2.7:81/", "http://192.0.2.7:81/", "192.0.2.7:81"),
        (None, None, None),
        (lambda a: f"https://post.example/{a.name}", None, None),
        (lambda a: 7, None, None),
    ],
)
def test_author_gives_lookup_link(stage: Stage, outside: Outside, link: Any, url: str | None, host: str | None) -> None:
    run = lost(stage, outside, link)
    found = link_of(run, wait_of(run))
    assert (found and found.url, found and found.host) == (url, host)


@each_case(
    "given",
    [
        "",
        "x",
        "//post.example/x",
        "ftp://post.example",
        "https://",
        "https://good.example@evil.example/",
        "https://post.example\\@evil.example",
        "https://post.example/\x00",
        "https://post.example/\u202egpj",
        "data:text/html,x",
        "https://ev%69l.example/",
        "https://good.example%E3%80%82evil.example/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://a..b/",
        "https://-a.example/",
        "https://_x.example/",
        " https://post.example",
        "https://post.example/a\nb",
        "https://p\u043est.example/",
        "https://[::1",
        "https://x:y/",
        "https://post.example/" + "x" * 2000,
        None,
        b"https://post.example",
    ],
)
def test_what_leads_elsewhere_than_it_shows_is_no_link(given: object) -> None:
    assert read(given) is None


def test_what_people_said_of_others_like_it(stage: Stage, outside: Outside, tools: Toolbox) -> None:
    olga = somebody("olga", "operator")
    first, second = (lost(stage, outside, None, agent="poster") for _ in range(2))
    other = lost(stage, outside, None, agent="another")
    says(first, olga, "happened", "In the outbox of Monday.")
    says(other, olga, "did_not", "of another agent")
    found = similar_to(second, wait_of(second))
    assert [(c.run, c.verdict, c.by, c.why) for c in found.cases] == [
        (first.id, "happened", "user:olga", "In the outbox of Monday.")
    ]
    assert found.counts == {"happened": 1} and found.tool == "letter"
    says(second, olga, "fail", "nobody knows")
    while stage.drive() != "idle":
        pass  # what was settled continues
    third = lost(stage, outside, None, agent="poster")
    assert [c.verdict for c in similar_to(third, wait_of(third)).cases] == ["fail", "happened"]


def says(run: Run, by: Actor, verdict: str, why: str) -> None:
    receipt = {"ref": "x"} if verdict == "happened" else None
    reconciling.reconcile(run.id, verdict=verdict, receipt=receipt, justification=why, by=by)
