from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from html.parser import HTMLParser
from itertools import product
from typing import Any
from uuid import uuid4

from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import events as e
from runs.console import pieces
from runs.queries.tool_cards import ToolCard
from runs.story import Effect, EventLine
from runs.story.scale import Placed, Stretch
from runs.story.transcript import TranscriptMessage
from tests.cases import each_case
from tests.integration.console.tape import NOON
from tests.integration.scale.test_page import events, taped
from tests.tiers import many, sample

HOSTILE = "<img src=x onerror=alert(1)>\"'&</span></details>{{ 5 }}\u202e"
DOCUMENT = {HOSTILE: [HOSTILE, {"a": HOSTILE}, None, 1.5, True, [], ""], "b": {HOSTILE: {HOSTILE: HOSTILE}}}
_OURS = {*"div b span details summary dl dt dd p code a time br svg rect line circle pre".split()}
_ATTRIBUTES = {
    *(
        "class id title href datetime data-clock data-since data-until data-due role tabindex width height "
        "aria-hidden focusable rx x y x1 x2 y1 y2 cx cy r fill overflow"
    ).split()
}
_EMPTY = {"br", "rect", "line", "circle"}


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _OURS and {name for name, _ in attrs} <= _ATTRIBUTES, (tag, attrs)
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _OURS and {name for name, _ in attrs} <= _ATTRIBUTES, (tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def whole(html: str) -> str:
    """Return the text of a well-formed piece; fail on foreign markup."""
    page = Page(html)
    assert page.open == []
    return page.words


def hostile_effect(status: str, **more: Any) -> Effect:
    words = {field.name: HOSTILE for field in fields(Effect) if field.type in ("str", "str | None")}
    return Effect(
        **{
            **words,
            "status": status,
            "seq": 5,
            "opened_at": NOON,
            "changed_at": NOON,
            "sent_at": NOON,
            "arguments": DOCUMENT,
            "result": DOCUMENT,
            **more,
        }
    )


def card(**words: str) -> ToolCard:
    known: dict[str, Any] = dict.fromkeys(
        ("name", "title", "system", "effect", "queue", "rule", "external_field"), HOSTILE
    )
    flags = dict.fromkeys(("is_pure", "is_unsafe", "answers_later", "has_hook"), False)
    return ToolCard(**{**known, **flags, "fields": (), "result_fields": (), **words})


def line(kind: str, **more: Any) -> EventLine:
    given: dict[str, Any] = {"clear": {"tool": HOSTILE, HOSTILE: HOSTILE}, **more}
    return EventLine(seq=3, at=NOON, kind=kind, slot=HOSTILE, attempt=0, epoch=-1, **given)


TOOLS: list[dict[str, ToolCard]] = [{}, {HOSTILE: card()}, {HOSTILE: card(system="", title="")}]
COUNTS: list[dict[str, int]] = [{}, {"sends": 1}, {"sends": 3, "attempts": 2, "interrupted": 1, "not_sent": 2}]
LATE = ["", "refused", "accepted", HOSTILE]


@each_case("status, tools, counts, late", sample(product([*pieces.STANDINGS, HOSTILE, ""], TOOLS, COUNTS, LATE), 5))
def test_an_effect_holds_no_markup_but_ours(
    status: str, tools: dict[str, ToolCard], counts: dict[str, int], late: str
) -> None:
    words = whole(pieces.effect(hostile_effect(status, late=late, contradicted=late and HOSTILE, **counts), tools))
    assert "<img src=x" in words  # as text


@each_case("status", pieces.STANDINGS)
def test_one_effect_is_said_only_of_a_call_that_has_one(status: str) -> None:
    effect = hostile_effect(status, sends=2, attempts=2, replay_class="idempotent_with_key")
    is_one = "sent 2 times, one effect" in whole(pieces.effect(effect, {}))
    assert is_one == (status == "committed")
    assert is_one or "sent 2 times under one key" in whole(pieces.effect(effect, {}))


def test_an_effect_names_the_approval_that_it_is_bound_to_only_where_there_can_be_one() -> None:
    there, nowhere = str(uuid4()), "no id"
    assert f'<a href="{reverse("approval", args=[there])}">' in pieces.effect(
        hostile_effect("held", approval_id=there), {}
    )
    assert "<a " not in pieces.effect(hostile_effect("held", approval_id=nowhere), {})


def test_an_event_holds_no_markup_but_ours() -> None:
    for value in (
        line("RunCreated"),
        line(HOSTILE),
        line("ToolRead", damage=HOSTILE),
        line("ToolRead", sealed=b"\x01broken"),
        line("X", clear={}),
    ):
        assert "event" not in whole(pieces.event(value)).replace("<img", "")
    assert "<img src=x" in whole(pieces.event(line(HOSTILE)))


def test_of_a_damaged_event_nothing_is_told_by_its_kind() -> None:
    found = whole(pieces.event(line("ToolRead", damage="its content can't be read", clear={})))
    assert "ToolRead damaged: its content can't be read" in found


@each_case("role", ["agent", "user", HOSTILE])
def test_a_thing_said_holds_no_markup_but_ours(role: str) -> None:
    bare = pieces.thing_said(TranscriptMessage(role, NOON, 3))
    full = pieces.thing_said(TranscriptMessage(role, NOON, 3, HOSTILE, DOCUMENT, HOSTILE, HOSTILE, 0, 0))
    assert "0 in, 0 out" not in whole(bare) and "0 in, 0 out" in whole(full) and "<img src=x" in whole(full)


def test_bars_hold_no_markup_but_ours() -> None:
    bars = [Stretch("0.00%", "5.00%", tone) for tone in ("work", "wait")]
    placed = Placed(None, bars, "5.00%")  # type: ignore[arg-type]  # the bars are all that is drawn of it
    for html in (pieces.track(placed), pieces.track(placed, has_seam=True), pieces.track(placed, point=HOSTILE)):
        assert whole(html).strip() == ""
    assert pieces.track(placed).count("url(#hatch)") == 1


def folded_effects(made: list[e.Event]) -> Iterator[Effect]:
    from runs.story import tell

    yield from tell(taped(made), NOON).effects.all()


@settings(max_examples=many(60, 30))
@given(st.lists(events(), max_size=25))
def test_every_standing_that_an_effect_can_come_to_has_its_words(made: list[e.Event]) -> None:
    for effect in folded_effects(made):
        assert effect.status in pieces.STANDINGS
        whole(pieces.effect(effect, {}))


STANDS: dict[str, Callable[[], list[e.Event]]] = {
    "held": lambda: [asked()],
    "cleared": lambda: [asked(), decided("approved")],
    "rejected": lambda: [asked(), decided("rejected")],
    "expired": lambda: [asked(), decided("expired")],
    "sent": lambda: [sent()],
    "accepted": lambda: [sent(), e.ToolAccepted(slot="0.1/1", tool="buy")],
    "not_sent": lambda: [sent(), e.ToolNotDispatched(slot="0.1/1", tool="buy", n=0)],
    "committed": lambda: [sent(), e.ToolReturned(slot="0.1/1", tool="buy", external_id=None)],
    "failed": lambda: [sent(), e.ToolFailed(slot="0.1/1", tool="buy", code="refused", requested_hash="h")],
    "unknown": lambda: [sent(), e.ToolOutcomeUnknown(slot="0.1/1", tool="buy", is_sender_done=True)],
    "settled_not": lambda: [
        sent(),
        e.ToolOutcomeUnknown(slot="0.1/1", tool="buy", is_sender_done=True),
        e.ToolReconciled(slot="0.1/1", tool="buy", by="user:o", verdict="did_not"),
    ],
    "undone": lambda: [
        sent(),
        e.ToolReturned(slot="0.1/1", tool="buy", external_id=None),
        e.EffectUndone(slot="0.2/1", of_run="", of_slot="0.1/1", of_attempt=0, tool="buy"),
    ],
}


def asked() -> e.Event:
    return e.ApprovalRequested(
        slot="0.1/1", approval_id="a", queue="q", tool="buy", requested_hash="h", plan_hash="p", rule="r", deadline=""
    )


def decided(verdict: str) -> e.Event:
    return e.ApprovalDecided(
        slot="0.1/1", approval_id="a", verdict=verdict, plan_hash="p", by="user:f", role="approver_finance"
    )


def sent() -> e.Event:
    return e.ToolInvoked(
        slot="0.1/1", tool="buy", replay_class="idempotent_with_key", requested_hash="h", executed_hash="h", grant=None
    )


def test_every_standing_that_has_words_can_be_come_to() -> None:
    assert STANDS.keys() == pieces.STANDINGS.keys()
    for status, made in STANDS.items():
        (effect,) = folded_effects(made())
        assert effect.status == status and pieces.STANDINGS[status][0] in whole(pieces.effect(effect, {}))
