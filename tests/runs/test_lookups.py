"""What helps whoever settles an unknown outcome: where the other system shows the call, and what became of others."""

from __future__ import annotations

from typing import Any

import pytest

from durableagents import Context, End, ReplayClass, ToolCall, TransportError, tool
from ledger.actors import Actor
from ledger.models import LedgerEntry
from ledger.web.seeing.viewers import EVERYTHING, Viewer, looking_as
from runs.engine.errors import DefinitionError
from runs.engine.fingerprint import tool_digest
from runs.models import Run, Wait
from runs.queries.doubts import similar
from runs.queries.doubts.links import link_of, read
from runs.queries.doubts.similar import similar_to
from runs.services import reconciling
from tests.approvals.setup import somebody
from tests.runs.stage import Stage, now
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def lost(stage: Stage, outside: Outside, link: Any, name: str = "a b", agent: str = "") -> Run:
    """A run whose letter may have left."""

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
    while args:  # for ever: whoever is stopped in the middle of a program ends there
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
def test_the_author_says_where_a_call_is_looked_up(
    stage: Stage, outside: Outside, link: Any, url: str | None, host: str | None
) -> None:
    run = lost(stage, outside, link)
    found = link_of(run, wait_of(run))
    assert (found and found.url, found and found.host) == (url, host)


@pytest.mark.parametrize(
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


def test_a_link_is_a_plain_function_and_no_part_of_a_version() -> None:
    async def later(args: Item) -> str:
        return "https://post.example"

    def made(link: Any) -> Any:
        @tool(replay_class=ReplayClass.PURE, link=link)
        async def letter(args: Item, call: ToolCall) -> Done:
            return Done(ref="x")

        return letter

    for wrong in (later, "https://post.example", 7):
        with pytest.raises(DefinitionError, match="link"):
            made(wrong)
    assert tool_digest(made(None)) == tool_digest(made(lambda a: "https://post.example"))


def test_what_people_said_of_others_like_it(stage: Stage, outside: Outside, tools: Toolbox) -> None:
    olga = somebody("olga", "operator")
    first, second = (lost(stage, outside, None, agent="poster") for _ in range(2))
    other = lost(stage, outside, None, agent="another")
    says(first, olga, "happened", "In the outbox of Monday.")
    says(other, olga, "did_not", "of another agent")
    found = similar_to(second, wait_of(second))
    assert [(c.run_id, c.verdict, c.by, c.why) for c in found.cases] == [
        (first.id, "happened", "user:olga", "In the outbox of Monday.")
    ]
    assert found.counts == {"happened": 1} and found.tool == "letter"
    says(second, olga, "fail", "nobody knows")
    while stage.drive() != "idle":
        pass  # what was settled goes on
    third = lost(stage, outside, None, agent="poster")
    assert [c.verdict for c in similar_to(third, wait_of(third)).cases] == ["fail", "happened"]


def says(run: Run, by: Actor, verdict: str, why: str) -> None:
    receipt = {"ref": "x"} if verdict == "happened" else None
    reconciling.reconcile(run.id, verdict=verdict, receipt=receipt, justification=why, by=by)


def test_others_are_shown_to_whoever_sees_them_and_what_they_are_about_to_whoever_reads_that(
    stage: Stage, outside: Outside
) -> None:
    olga = somebody("olga", "operator")
    first, second = (lost(stage, outside, None, agent="poster") for _ in range(2))
    says(first, olga, "happened", "seen")
    Run.objects.filter(pk=first.pk).update(about="A letter to Ann")
    with looking_as(EVERYTHING):
        assert similar_to(second, wait_of(second)).cases[0].about == "A letter to Ann"
    with looking_as(Viewer(person=olga.person, reads_all=False)):
        assert similar_to(second, wait_of(second)).cases[0].about == ""
    with looking_as(Viewer(person=olga.person, sees_all=False, reads_all=False)):
        assert similar_to(second, wait_of(second)).cases == ()


def test_others_are_not_crowded_out_by_what_no_person_settled(
    stage: Stage, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    olga = somebody("olga", "operator")
    first, second = (lost(stage, outside, None, agent="poster") for _ in range(2))
    says(first, olga, "fail", "seen")
    monkeypatch.setattr(similar, "LOOKED_AT", 2)
    intent = LedgerEntry.objects.filter(run_id=first.id).earliest("id")
    for n in range(3):
        LedgerEntry.objects.create(
            run_id=first.id,
            seq=1,
            slot=intent.slot,
            attempt=n + 1,
            fact="reconciled",
            tool="letter",
            replay_class="unsafe_on_replay",
            digest="e3b0",
            actor="worker:x",
            at=now(),
        )
    assert [c.verdict for c in similar_to(second, wait_of(second)).cases] == ["fail"]
