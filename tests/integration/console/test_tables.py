"""A new state, wait, event or row is one table entry: none is missing, and none lets its text be markup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import product
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import uuid4

import pytest
from django.urls import reverse

from approvals.brief import CHIPS, chip_of
from approvals.models import Approval, ApprovalState
from ledger import events as e
from ledger.actors import Actor
from ledger.models import Head
from runs.console import timeline_rows
from runs.console.run_page import Dossier, PageScope
from runs.console.tables import event_words, statuses
from runs.engine.tape import CALLED_BACK
from runs.models import Run, State, Wait
from runs.queries import display, sentences
from runs.queries.actions import Reader, steering
from runs.queries.run_facts import Related, RunFacts
from runs.queries.run_list import Card
from runs.queries.sentences import SENTENCES, wait_sentence
from runs.queries.status import REASONS, reason_of, status_of
from runs.services import authority
from runs.services.reconciling import VERDICTS
from runs.story import findings, line_of
from runs.story.folded import Drawn, Opened
from runs.story.rows import Row, RowKind
from runs.story.scale import Placed
from tests.cases import each_case
from tests.integration.console.tape import NOON, Tape
from tests.unit.console.test_pieces import HOSTILE, whole

KINDS = [*Wait.Kind.values]


def wait_of(kind: str, **detail: Any) -> Wait:
    return Wait(id=uuid4(), kind=kind, opened_at=NOON, deadline=NOON + timedelta(days=1), detail=detail)


def hostile_wait(kind: str) -> Wait:
    names = ("title", "tool", "name", "queue", "headline", "of", "reason", "error", "approval_id", "problem")
    return wait_of(kind, retry=True, **dict.fromkeys(names, HOSTILE))


def situations() -> Iterator[tuple[Run, Head, list[Wait]]]:
    """Yield every combination of what a run's status text depends on."""
    for state, owner, is_stopped, is_cancelled in product(State.values, (None, uuid4()), (True, False), (True, False)):
        head = Head(is_pause_requested=is_stopped, is_cancel_requested=is_cancelled)
        for kind in [None, *KINDS]:
            yield Run(state=state, owner=owner), head, [wait_of(kind)] if kind else []
    yield Run(state="pending", is_queued=True, business_key=HOSTILE), Head(), []
    yield Run(state="pending", ready_at=datetime(2999, 1, 1, tzinfo=UTC)), Head(), []
    for how in ("renewal", "handoff"):
        yield Run(state="completed", goes_on_as=uuid4(), goes_on_by=how), Head(), []


def test_every_verdict_and_every_word_of_a_witness_has_its_own() -> None:
    assert findings.ON_RECORD.keys() == {*VERDICTS, "refused"}
    assert findings.WITNESSES.keys() == {"happened", "accepted", "refused", CALLED_BACK}
    assert len(set(findings.ON_RECORD.values())) == 4 and len(set(map(findings.witness, findings.WITNESSES))) == 4


BY_OTHERS = {"no_worker", "no_version", "draining", "no_key", "halted", "limit", "breaker"}


def test_every_reason_has_its_look_and_its_sentences() -> None:
    reached = {reason_of(RunFacts(run, head, some, None)) for run, head, some in situations()}
    assert reached | BY_OTHERS | {"retry_timer"} == set(REASONS) == statuses.CHIPS.keys()
    assert SENTENCES.keys() == set(REASONS) - {"halted", "limit", "breaker"}


def dossier(situation: tuple[Run, Head, list[Wait]], tape: Tape) -> Dossier:
    run, head, open_waits = situation
    kept = Drawn()
    opened = Opened(uuid4(), kept)
    related = Related()
    vars(related).update(paused_by={}, cancelled_by={}, proposals={}, is_for_two=True)  # read from the database
    facts = RunFacts(run, head, open_waits, None, related)
    return Dossier(run, head, tape.story(), opened, kept, {}, PageScope(), facts, {}, None, NOON)


def hostile_tape() -> Tape:
    tape = Tape().created().claimed().visit(HOSTILE)
    tape.add(e.RunClaimed(epoch=2, worker=HOSTILE, host=HOSTILE, pid=3, cause="start"))
    tape.add(e.PauseRequested(by=HOSTILE))
    return tape.invoked(tool=HOSTILE)


def test_a_row_of_the_list_holds_no_markup_but_ours() -> None:
    times = dict.fromkeys(("created_at", "ended_at", "ready_at", "updated_at"), NOON)
    for reason in REASONS:
        whole(statuses.chip(reason))  # type: ignore[arg-type]
    for state, kind in product(State.values, KINDS):
        run = Run(state=state, node=HOSTILE, error_code=HOSTILE, **times)
        facts = RunFacts(run, Head(), [hostile_wait(kind), hostile_wait("input")], None)
        whole(statuses.row(Card(facts, reason_of(facts))))


def test_the_sentence_at_the_head_of_a_page_holds_no_markup_but_ours() -> None:
    fields: dict[str, str] = {}
    for (run, head, open_waits), tape in product(situations(), (Tape().created(), hostile_tape())):
        run.created_at = run.updated_at = run.ended_at = NOON
        run.graph_id = run.node = run.error_code = HOSTILE
        d = dossier((run, head, [hostile_wait(wait.kind) for wait in open_waits]), tape)
        for halt in (None, {"kind": "halt", "scope": "agent", "key": HOSTILE, "by": HOSTILE, "why": HOSTILE}):
            d.head.halted = halt and halt | {"since": NOON.isoformat()}  # type: ignore[attr-defined]
            fields[d.reason] = fields.get(d.reason, "") + whole(statuses.why(d))
    inert = {"completed", "renewed", "handed_off", "undoing", "not_due", "damaged"}
    assert not {reason for reason in fields.keys() - inert if "<img" not in fields[reason]}  # as text


def test_a_run_in_an_unknown_state_is_shown_as_damaged() -> None:
    odd = Run(state=HOSTILE)
    assert "<img" in whole(statuses.why(dossier((odd, Head(), []), Tape().created())))
    olga = Reader(Actor("user", "olga", person=1), frozenset({"operator"}))
    offers = steering(RunFacts(odd, Head(), [], None), olga, authority.SteeringAuthority())
    assert not any(offer.allowed for offer in offers.values())


@pytest.mark.django_db
def test_every_situation_has_a_sentence_in_plain_words_and_says_whom_it_concerns() -> None:
    for run, head, some in situations():
        run.created_at = run.updated_at = run.ended_at = NOON
        status = status_of(RunFacts(run, head, some, None))
        assert status.sentence.endswith((".", "?")) and status.who.kind, status


def facts_with(wait: Wait) -> RunFacts:
    return RunFacts(Run(state="waiting_event"), Head(), [wait], None)


def told_of(wait: Wait) -> str:
    return whole(statuses.markup(wait_sentence(facts_with(wait), wait).parts))


def test_page_and_api_give_one_sentence() -> None:
    related = Related()
    vars(related).update(paused_by={}, cancelled_by={None: "user:olga"}, proposals={}, is_for_two=True)
    ended = {"state": "cancelled", "ended_at": NOON}
    held = wait_of("timer", title="Pay", held="waits until morning")
    for run, some, said in (
        (Run(state="waiting_human"), [wait_of("reconcile", title="Pay")], "Two operators have to settle it"),
        (Run(state="waiting_event"), [held], "Pay waits until morning, since"),
        (Run(id=None, **ended), [], "Cancelled by user:olga, at"),
    ):
        facts = RunFacts(run, Head(), some, None, related)
        sentence = SENTENCES[reason_of(facts)](facts)
        assert said in str(sentence) and said in whole(statuses.markup(sentence.parts))


def test_every_kind_of_wait_has_its_sentence_and_its_place_among_the_others() -> None:
    assert set(KINDS) == set(display.URGENCY)
    assert {*sentences.LEADS, "timer", "reconcile"} == set(KINDS)


@each_case("kind", [*KINDS, HOSTILE])
def test_a_wait_holds_no_markup_but_ours_whatever_is_in_its_row(kind: str) -> None:
    assert "<img" in told_of(hostile_wait(kind))
    for detail in (None, [], 5, HOSTILE, {}, {"retry": 1}, {"tool": 5, "title": [HOSTILE], "approval_id": {}}):
        damaged = wait_of(kind)
        damaged.detail = detail
        told_of(damaged)


def test_an_approval_that_is_waited_for_is_a_link() -> None:
    number = str(uuid4())
    wait = wait_of("approval", approval_id=number)
    assert reverse("approval", args=[number]) in statuses.markup(wait_sentence(facts_with(wait), wait).parts)


def made_up(hint: Any) -> Any:
    one = next(
        kind
        for kind in (get_args(hint) if get_origin(hint) not in (list, dict) else (hint,)) or (hint,)
        if kind is not NoneType
    )
    known: dict[Any, Any] = {str: HOSTILE, int: 2, bool: True, list: [HOSTILE], dict: {HOSTILE: HOSTILE}, Any: HOSTILE}
    return known[get_origin(one) or one]


def hostile_event(kind: type[e.Event]) -> e.Event:
    hints = get_type_hints(kind)
    own = {field.name: made_up(hints[field.name]) for field in fields(kind) if field.name not in ("attempt", "payload")}
    return kind(**own)


def test_every_kind_of_event_has_its_words() -> None:
    assert event_words.EVENTS.keys() == e.KINDS.keys()


@each_case("kind", e.KINDS)
def test_an_event_s_words_hold_no_markup_but_ours(kind: str) -> None:
    line = line_of(hostile_event(e.KINDS[kind]), seq=1, at=NOON)
    whole(event_words.phrase(line))


@each_case("kind", e.KINDS)
def test_an_event_s_words_are_about_fields_that_it_has(kind: str) -> None:
    line = line_of(hostile_event(e.KINDS[kind]), seq=1, at=NOON)
    found = event_words.EVENTS[kind](line.clear, 1)  # type: ignore[arg-type]  # one that knows no other field, to find a wrong name
    assert found == event_words.EVENTS[kind](event_words.facts(line), 1)


def test_every_kind_of_row_has_its_entry() -> None:
    assert timeline_rows.KINDS.keys() == set(get_args(RowKind))


@each_case("kind", get_args(RowKind))
def test_a_row_of_the_timeline_holds_no_markup_but_ours(kind: RowKind) -> None:
    d = dossier(next(situations()), Tape().created())
    for tone, is_open, is_cut in product(("bad", "unsure", "settled", "ok", "", HOSTILE), (True, False), (True, False)):
        words = {"note": HOSTILE, "trace": HOSTILE, "reached": HOSTILE, "tone": tone}
        row = Row(kind, HOSTILE, NOON, 3, end=NOON, is_open=is_open, is_cut=is_cut, count=2, visit=2, silent=5, **words)
        whole(timeline_rows.timeline_row(Placed(row, [], "1.00%"), d))


def test_every_state_of_an_approval_has_its_chip() -> None:
    assert CHIPS.keys() == set(ApprovalState)
    assert chip_of(Approval(state="open", queue="legal")) == ("waiting for legal", "wait")
    assert chip_of(Approval(state=HOSTILE)) == (HOSTILE, "")
