from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError

from durableagents import Context, End
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput, NotFound, TooLarge
from runs.engine.agents import registry
from runs.engine.errors import UnknownAgent
from runs.models import Message
from runs.services import lifecycle, signals
from runs.services.messages import sending
from runs.services.messages.sending import CheckFailed, CheckRefused, NotTaken, OtherMessage, Sent, TooMany
from tests.integration.messages.desk import Add, Desk, desk, send, told
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, events, fresh, kinds, output, problems
from tests.tampering import tamper
from tests.world import OLGA, SHOP, Item, Toolbox

pytestmark = pytest.mark.django_db


# --- who may send what ---


def test_what_is_not_taken_is_refused_and_nothing_changes(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    assert stage.drive() == "parked"
    send(run, "a")
    assert stage.drive() == "parked"
    before = kinds(run)
    with pytest.raises(InvalidInput) as wrong:
        sending.send(run.id, "add", {"pages": 0, "name": 7}, by=SHOP)
    assert {x["field"] for x in wrong.value.extra["errors"]} == {"body.name", "body.pages"}
    with pytest.raises(InvalidInput):
        sending.send(run.id, "add", None, by=SHOP)
    with pytest.raises(NotTaken) as unknown:
        sending.send(run.id, "Ädd\n<b>", {}, by=SHOP)
    assert unknown.value.extra["takes"] == ["add"]
    with pytest.raises(CheckRefused, match="it is here already") as twin:
        send(run, "a")
    assert twin.value.extra["reason"] == "twin"
    with pytest.raises(CheckFailed, match="ZeroDivisionError"):
        send(run, "bug")
    with pytest.raises(TooLarge):
        send(run, "x" * 65_536)
    with pytest.raises(NotFound):
        sending.send(UUID(int=7), "add", {"name": "a"}, by=SHOP)
    assert kinds(run) == before and len(told(run)) == 1 and fresh(run).ready_at is None
    check_against_journal(run)


def test_a_check_sees_a_state_of_its_own(stage: Stage, tools: Toolbox) -> None:
    agent = desk(tools)

    def spoils(state: Desk, request: Add) -> None:
        state.documents.append("spoiled")

    agent.messages["add"] = replace(agent.messages["add"], check=spoils)
    run = stage.start(agent)
    assert stage.drive() == "parked"
    send(run, "a")
    assert stage.drive() == "parked"
    assert events(run, e.MessageHandled)[0].payload["change"]["documents"] == ["a"]


def test_a_repeat_under_the_senders_id_is_the_same_message(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    first = send(run, "a", sender_id="4711")
    again = send(run, "a", sender_id="4711")
    assert (first.is_new, again.is_new, again.message.pk) == (True, False, first.message.pk)
    assert not sending.send(run.id, "add", {"pages": 1, "name": "a"}, by=SHOP, sender_id="4711").is_new, "as checked"
    for other in ({"name": "b"}, {"name": "a", "pages": 2}, {"nonsense": 1}):
        with pytest.raises(OtherMessage):
            sending.send(run.id, "add", other, by=SHOP, sender_id="4711")
    with pytest.raises(OtherMessage):
        sending.send(run.id, "other", {"name": "a"}, by=SHOP, sender_id="4711")
    assert send(run, "b", by=OLGA, sender_id="4711").is_new, "an id is its sender's own"
    assert stage.drive() == "parked"
    assert not send(run, "a", sender_id="4711").is_new, "though the check would refuse it by now"
    signals.signal(run.id, "go", by=SHOP)
    assert stage.drive() == "completed"
    assert send(run, "a", sender_id="4711").message.outcome == "answered", "the run has ended, the answer stands"
    registry.remove(run.graph_id)
    whole = {"name": "a", "pages": 1}
    known = sending.send(run.id, "add", whole, by=SHOP, sender_id="4711")
    assert not known.is_new and known.message.outcome == "answered", "also where a process hasn't got the version"
    with pytest.raises(UnknownAgent):
        sending.send(
            run.id, "add", {"name": "a"}, by=SHOP, sender_id="4711"
        )  # only the version knows the omitted field
    assert len(told(run)) == 2
    check_against_journal(run)


def test_of_many_senders_at_once_each_message_has_its_number_and_a_repeat_has_one(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    sent = at_once(*(partial(send, run, f"d{i % 4}", sender_id=f"s{i % 4}") for i in range(8)))
    assert all(isinstance(x, Sent) for x in sent), sent
    assert sorted(n for n, _ in told(run)) == [1, 2, 3, 4]
    assert sum(x.is_new for x in sent) == 4
    assert stage.drive() == "parked" and {x for _, x in told(run)} == {"answered"}
    check_against_journal(run)


def test_more_than_are_kept_are_refused_with_what_to_do(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "MAX_UNANSWERED", 2)
    run = stage.start(desk(tools))
    send(run, "a")
    send(run, "b")
    with pytest.raises(TooMany, match="Send yours again when some have been answered"):
        send(run, "c")
    assert stage.drive() == "parked" and send(run, "c").is_new


# --- a paused or ended run ---


def test_a_paused_run_keeps_it_and_answers_when_it_goes_on(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    assert stage.drive() == "parked"
    lifecycle.pause(run.id, by=OLGA, justification="lunch")
    send(run)
    assert fresh(run).ready_at is None and stage.drive() == "idle"
    check_against_journal(run)
    lifecycle.resume(run.id, by=OLGA, justification="back")
    assert stage.drive() == "parked" and told(run) == [(1, "answered")]
    check_against_journal(run)


def test_a_run_that_stopped_for_an_operator_answers_when_somebody_has_looked(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    assert stage.drive() == "parked"
    agent = registry.find(run.graph_id)
    kept = agent.nodes["wait"]

    async def other(state: Desk, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="another"))
        return End(None)

    agent.nodes["wait"] = replace(kept, function=other)
    send(run, "a")
    assert stage.drive() == "operator"
    assert told(run) == [(1, "")]
    send(run, "b")
    assert fresh(run).ready_at is None
    check_against_journal(run)
    agent.nodes["wait"] = kept
    lifecycle.retry(run.id, by=OLGA, justification="the old code is back")
    assert stage.drive() == "parked" and told(run) == [(1, "answered"), (2, "answered")]
    check_against_journal(run)


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "cancelled while it works"])
def test_what_was_not_answered_is_told_that_the_run_has_ended_forever(stage: Stage, tools: Toolbox, end: str) -> None:
    async def last(state: Desk, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="first"))
        if end == "failed" and len(sent) == 1:
            sent.append(True)
            raise RuntimeError("broke")
        return End(state.documents)

    run, sent = stage.start(desk(tools, last)), list[bool]()

    def at(point: str, tool: str) -> None:
        if point == "CP6" and not sent:
            sent.append(True)
            at_once(partial(send, run, sender_id="4711"))
            if end == "cancelled while it works":
                at_once(partial(lifecycle.cancel, run.id, by=OLGA, justification="enough"))

    stage.at = at
    if end == "cancelled":
        sent.append(True)
        send(run, sender_id="4711")
        lifecycle.cancel(run.id, by=OLGA, justification="enough")
    else:
        stage.drive()
    assert fresh(run).state == end.split()[0]
    assert told(run) == [(1, "ended")] and events(run, e.MessageHandled) == []
    with pytest.raises(IllegalTransition, match="can't take a message"):
        send(run, "b")
    assert send(run, sender_id="4711").message.outcome == "ended"
    check_against_journal(run)
    if end == "failed":
        lifecycle.retry(run.id, by=OLGA, justification="again")
        send(run, "b")
        assert stage.drive() == "completed" and output(run) == []
        assert told(run) == [(1, "ended"), (2, "ended")], "what was told that it ended is never handled"
        check_against_journal(run)


def test_a_run_that_is_being_cancelled_takes_none(stage: Stage, tools: Toolbox) -> None:
    run, seen = stage.start(desk(tools)), list[Any]()

    def at(point: str, tool: str) -> None:
        if point == "CP6" and not seen:
            at_once(partial(lifecycle.cancel, run.id, by=OLGA, justification="enough"))
            seen.extend(at_once(partial(send, run)))

    stage.at = at
    assert stage.drive() == "cancelled"
    assert isinstance(seen[0], IllegalTransition) and told(run) == []


# --- forged, damaged, stale ---


def test_no_one_but_the_runs_worker_answers_and_each_only_once(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    send(run)
    assert stage.drive() == "parked"
    for n, problem in ((1, "is not the one to be answered"), (2, "is not the one to be answered")):
        with pytest.raises(DatabaseError, match=problem), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT runs_answer_message(%s, NULL, NULL, 'x', ARRAY[]::ledger_line[], %s, 'answered', '{}')",
                [run.id, n],
            )
    with pytest.raises(DatabaseError, match="stale lease"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT runs_answer_message(%s, 99, %s, 'x', ARRAY[]::ledger_line[], 1, 'answered', '{}')",
            [run.id, UUID(int=1)],
        )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("outcome = 'refused'", "outcome"),
        ("outcome = '', answered_seq = NULL", "outcome"),
        ("seq = 1", "seq"),
        ("answered_seq = 2", "answered_seq"),
        ("name = 'other'", "name"),
        ("by = 'user:mallory'", "by"),
        ("n = 5", "has no event"),
    ],
)
def test_a_row_that_was_changed_is_found(stage: Stage, tools: Toolbox, change: str, problem: str) -> None:
    run = stage.start(desk(tools))
    send(run)
    assert stage.drive() == "parked"
    tamper(f"UPDATE runs_message SET {change} WHERE run_id = '{run.id}'")
    assert any("message 1" in found or "message 5" in found for found in problems(run)), problems(run)
    assert any(problem in found for found in problems(run))


def test_a_message_that_somebody_put_there_by_hand_stops_the_run(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools))
    assert stage.drive() == "parked"
    Message.objects.create(run=run, n=1, name="add", by="user:mallory", seq=1)
    signals.signal(run.id, "go", by=SHOP)
    assert stage.drive() in ("completed", "operator")
    assert any("message 1 has no event" in found for found in problems(run))


def test_a_signal_that_nothing_in_the_agent_takes_is_refused(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(desk(tools, signals=["go"]))
    assert stage.drive() == "parked"
    with pytest.raises(NotTaken, match="accepts no signal 'other'") as no:
        signals.signal(run.id, "other", by=SHOP)
    assert no.value.extra["takes"] == ["go"]
    dynamic = stage.start(desk(tools))
    assert signals.signal(dynamic.id, "other", by=SHOP).is_new, "an agent that doesn't say takes any"
    signals.signal(run.id, "go", by=SHOP)
    assert stage.settle(run) == "completed"
