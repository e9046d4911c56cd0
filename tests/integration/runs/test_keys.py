from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from durableagents import Context, End, Failure
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, IllegalTransition, InvalidInput
from runs.models import Run
from runs.services import lifecycle
from runs.services.starts import keys, turns
from runs.services.starts.keys import Begun, Delivery, KeyTaken, Wanted
from runs.workers import timers
from tests.integration.runs.stage import Stage, at_once, dump, events, fresh, kinds, now, overrides, problems
from tests.tiers import many
from tests.world import OLGA, Notes, Toolbox, agent_of

pytestmark = [pytest.mark.usefixtures("stage"), pytest.mark.every(2)]
KEY = "invoice 2026-0815"
WHY = "the test says so"
SHOP = Actor("key", "shop", role="integrator", auth="api_key", address="192.0.2.1", person=7)


@pytest.fixture
def name(tools: Toolbox) -> str:
    async def node(state: Notes, ctx: Context) -> End:
        if state.asked.text == "fail":
            raise Failure("no luck", code="no_luck")
        if state.asked.text == "wait":
            return End(str(await ctx.signal("go")))
        return End(state.asked.text)

    return agent_of(node).graph_id


def begin(name: str, rule: str = "refuse", text: str = "a", *, by: Actor = SHOP, key: str = KEY, **more: Any) -> Begun:
    with transaction.atomic():
        return keys.start(Wanted(name, {"text": text}, business_key=key, on_conflict=rule, **more), by=by)


def run_of(name: str, rule: str = "refuse", text: str = "a", **more: Any) -> Run:
    return begin(name, rule, text, **more).run


def sound(*runs: Run) -> None:
    for run in runs:
        assert problems(run) == []


def state(run: Run) -> str:
    return str(fresh(run).state)


def drive(stage: Stage) -> str:
    how = stage.drive()
    turns.pass_on_from(Run.objects.filter(ended_at__isnull=False).values_list("id", flat=True))
    return how


# --- the five rules ---------------------------------------------------------------------------------------------------


def test_a_key_is_refused_while_a_run_of_it_lives_and_free_after(name: str, stage: Stage) -> None:
    first = run_of(name)
    before = dump()
    with pytest.raises(KeyTaken) as refused:
        begin(name)
    assert refused.value.extra["run"] == str(first.id) and str(first.id) in refused.value.detail
    assert dump() == before, "a refusal changes nothing"
    other = run_of(name, key="another")
    assert stage.drive() == stage.drive() == "completed"
    again = run_of(name)
    assert again.id != first.id and kinds(again) == ["RunCreated", "StartPlanned"]
    sound(first, other, again)


def test_joining_answers_with_the_run_that_lives_and_writes_nothing(name: str) -> None:
    first = run_of(name)
    before = dump()
    joined = begin(name, "join", "b")
    assert joined.run.id == first.id and not joined.is_new and dump() == before
    with pytest.raises(InvalidInput):
        begin(name, "join", 3)  # type: ignore[arg-type]


def test_queued_runs_begin_in_order_each_when_those_before_have_ended(name: str, stage: Stage) -> None:
    first, *queued = [run_of(name, "queue", text) for text in "abcd"]
    assert [fresh(run).ready_at for run in queued] == [None] * 3
    assert drive(stage) == "completed" and state(first) == "completed"
    for i, run in enumerate(queued):
        assert [state(r) for r in queued[i + 1 :]] == ["pending"] * (2 - i)
        (found,) = events(run, e.RunAdmitted)
        assert found.after == str([first, *queued][i].id)
        assert drive(stage) == "completed" and state(run) == "completed"
    assert drive(stage) == "idle"
    sound(first, *queued)


def test_replacing_cancels_the_idle_run_and_begins_at_once(name: str, stage: Stage) -> None:
    first, second = run_of(name, "queue"), run_of(name, "queue")
    third = run_of(name, "replace", "new")
    assert (state(first), state(second)) == ("cancelled", "cancelled")
    for old in (first, second):
        (record,) = overrides(old)
        assert record.action == "cancel" and record.by == SHOP.ref and KEY in record.justification
    assert not fresh(third).is_queued and drive(stage) == "completed" and state(third) == "completed"
    sound(first, second, third)


def test_replacing_a_driven_run_waits_for_its_end(name: str, stage: Stage) -> None:
    first = run_of(name)
    (claimed,) = stage.claim()
    third = run_of(name, "replace", "new")
    assert fresh(third).is_queued and state(first) == "running" and stage.claim() == []
    assert stage.drive_claimed(claimed) == "cancelled"
    assert turns.pass_on(first.id) and drive(stage) == "completed" and state(third) == "completed"
    sound(first, third)


def test_someone_who_may_not_cancel_a_run_replaces_none(name: str) -> None:
    first = run_of(name)
    before = dump()
    stranger = Actor("key", "stranger", role="integrator", auth="api_key", person=77)
    with pytest.raises(Forbidden):
        begin(name, "replace", by=stranger)
    assert dump() == before and state(first) == "pending"


def test_a_later_start_takes_the_place_of_one_that_has_not_begun(name: str, stage: Stage) -> None:
    window = timedelta(seconds=60)
    first = run_of(name, "debounce", "a", window=window)
    second = run_of(name, "debounce", "b", window=window)
    assert state(first) == "cancelled" and drive(stage) == "idle"
    at = fresh(second).ready_at
    assert at is not None and timedelta(seconds=50) < at - now() <= window
    due(second)
    (claimed,) = stage.claim()
    third = run_of(name, "debounce", "c", window=window)
    assert fresh(third).is_queued and state(second) == "running", "who has begun isn't touched"
    assert stage.drive_claimed(claimed) == "completed"
    turns.pass_on(second.id)
    ready, found = fresh(third).ready_at, events(third, e.RunAdmitted)
    assert ready == fresh(third).start_at and len(found) == 1
    sound(first, second, third)


def due(run: Run) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET ready_at = clock_timestamp() WHERE id = %s", [run.id])


def test_a_signal_starts_a_run_where_none_lives_and_is_delivered_where_one_does(name: str, stage: Stage) -> None:
    go = Delivery("go", {"n": 1}, "mail 1")
    first = begin(name, "join", "wait", deliver=go)
    again = begin(name, "join", "wait", deliver=go)
    assert again.run.id == first.run.id and first.is_new and not again.is_new
    assert len(events(first.run, e.SignalReceived)) == 1, "one id is one signal"
    assert drive(stage) == "completed"
    other = begin(name, "join", "wait", deliver=go)
    assert other.run.id != first.run.id and drive(stage) == "completed"
    sound(first.run, other.run)


# --- ended by anyone --------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Stage, Run], Any]] = {
    "completed": lambda stage, run: stage.drive(),
    "cancelled by a person": lambda stage, run: lifecycle.cancel(run.id, by=OLGA, justification=WHY),
    "cancelled while paused": lambda stage, run: (
        lifecycle.pause(run.id, by=OLGA, justification=WHY),
        lifecycle.cancel(run.id, by=OLGA, justification=WHY),
    ),
    "not begun in time": lambda stage, run: late(run),
}


def late(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(start_before=now() - timedelta(seconds=1))
    timers.sweep_starts()


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "after a crash"])
def test_the_next_is_let_in_no_matter_who_ends_a_run_and_also_after_a_crash(
    name: str, stage: Stage, how: str, is_noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = run_of(name), run_of(name, "queue")
    if not is_noticed:
        monkeypatch.setattr(turns, "pass_on", lambda run_id: False)  # the process that passes the turn on has died
    ENDS[how](stage, first)
    monkeypatch.undo()
    assert fresh(first).ended_at is not None
    timers.sweep_starts()
    assert not fresh(second).is_queued and fresh(second).ready_at is not None
    assert turns.ended() == [] and len(events(second, e.RunAdmitted)) == 1
    timers.sweep_starts()
    assert len(events(second, e.RunAdmitted)) == 1 and drive(stage) == "completed"


def test_one_that_fails_lets_the_next_in_and_may_not_live_again_alongside_it(name: str, stage: Stage) -> None:
    first, second = run_of(name, text="fail"), run_of(name, "queue", "wait")
    assert drive(stage) == "failed"
    before = dump()
    with pytest.raises(IllegalTransition, match="Another run with its key"):
        lifecycle.retry(first.id, by=OLGA, justification=WHY)
    assert dump() == before
    lifecycle.cancel(second.id, by=OLGA, justification=WHY)
    third = run_of(name, "queue")
    lifecycle.cancel(third.id, by=OLGA, justification=WHY)
    lifecycle.retry(first.id, by=OLGA, justification=WHY)
    fourth = run_of(name, "queue")
    assert drive(stage) == "failed" and not fresh(fourth).is_queued, "the end after a retry counts as well"
    sound(first, second, third, fourth)


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_queued_run_that_is_paused_or_ended_keeps_nobody_waiting(name: str, stage: Stage, is_paused: bool) -> None:
    first, second, third = (run_of(name, "queue") for _ in range(3))
    if is_paused:
        lifecycle.pause(second.id, by=OLGA, justification=WHY)
        drive(stage)
        assert not fresh(second).is_queued and fresh(second).ready_at is None and fresh(third).is_queued
        lifecycle.resume(second.id, by=OLGA, justification=WHY)
        assert drive(stage) == "completed"
    else:
        lifecycle.cancel(second.id, by=OLGA, justification=WHY)
        drive(stage)
    assert not fresh(third).is_queued and drive(stage) == "completed"
    sound(first, second, third)


def test_a_queued_run_that_is_paused_and_resumed_is_queued_still(name: str, stage: Stage) -> None:
    first, second = run_of(name, text="wait"), run_of(name, "queue")
    lifecycle.pause(second.id, by=OLGA, justification=WHY)
    lifecycle.resume(second.id, by=OLGA, justification=WHY)
    assert fresh(second).is_queued and fresh(second).ready_at is None
    assert stage.drive() == "parked" and stage.drive() == "idle"
    sound(first, second)


# --- at a time --------------------------------------------------------------------------------------------------------


def test_a_run_begins_at_its_time_and_not_before_whatever_is_done_to_it(name: str, stage: Stage) -> None:
    at = now() + timedelta(hours=1)
    run = run_of(name, key="", start_at=at)
    assert fresh(run).ready_at == at and stage.drive() == "idle"
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    lifecycle.resume(run.id, by=OLGA, justification=WHY)
    assert fresh(run).ready_at == at and stage.drive() == "idle"
    left = fresh(run).time_up_at
    assert left is not None and left - at >= timedelta(days=89, hours=23), "what it may take counts from then"
    due(run)
    assert stage.drive() == "completed"


def test_a_run_that_has_not_begun_in_time_ends_with_the_reason(name: str, stage: Stage) -> None:
    run = run_of(name, key="", start_before=now() + timedelta(seconds=60))
    timers.sweep_starts()
    assert state(run) == "pending"
    Run.objects.filter(pk=run.pk).update(start_before=now() - timedelta(microseconds=1))
    assert stage.claim() == [], "no worker begins it in the moment before somebody looks"
    assert timers.sweep_starts() == 1 and state(run) == "cancelled"
    (found,) = events(run, e.RunCancelled)
    assert "it should have started before" in found.payload["justification"] and found.by == "system:sweeper"
    assert timers.sweep_starts() == 0


@pytest.mark.parametrize(
    "times",
    [
        {"start_before": timedelta(seconds=-1)},
        {"start_at": timedelta(days=400)},
        {"start_at": timedelta(hours=2), "start_before": timedelta(hours=1)},
    ],
    ids=str,
)
def test_times_at_which_nothing_could_begin_are_refused(name: str, times: dict[str, timedelta]) -> None:
    before = dump()
    with pytest.raises(InvalidInput) as refused:
        begin(name, **{which: now() + after for which, after in times.items()})
    assert refused.value.extra["errors"][0]["field"] in times and dump() == before


# --- concurrency ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["refuse", "join", "queue", "replace", "debounce"])
def test_of_many_starts_at_once_one_lives(name: str, stage: Stage, rule: str) -> None:
    window = timedelta(seconds=60) if rule == "debounce" else None
    answers = at_once(*(partial(begin, name, rule, str(i), window=window) for i in range(16)))
    wrong = [a for a in answers if isinstance(a, Exception) and not isinstance(a, KeyTaken)]
    assert wrong == []
    alive = Run.objects.filter(ended_at__isnull=True, is_queued=False)
    assert alive.count() == 1
    made = Run.objects.count()
    assert made == (1 if rule in ("refuse", "join") else 16)
    if rule == "refuse":
        assert sum(isinstance(a, Begun) for a in answers) == 1
    if rule == "queue":
        order = list(Run.objects.order_by("created_at"))
        for run in order:
            assert drive(stage) == "completed" and state(run) == "completed"
    sound(*Run.objects.all())


def test_starts_and_ends_and_retries_that_cross_leave_one_that_lives_and_none_behind(name: str, stage: Stage) -> None:
    """Each round a run of the key ends or is retried while others start under it."""
    for round_ in range(many(8, 3)):
        lead = run_of(name, "queue", "fail")
        while state(lead) == "pending":
            assert drive(stage) in ("failed", "completed")
        acts: list[Callable[[], Any]] = [partial(begin, name, "queue", "a") for _ in range(4)]
        acts += [partial(lifecycle.retry, lead.id, by=OLGA, justification=WHY) for _ in range(2)]
        acts += [partial(turns.pass_on, lead.id) for _ in range(2)]
        answers = Counter(type(a) for a in at_once(*acts))
        assert set(answers) <= {Begun, Run, bool, IllegalTransition, keys.KeyBusy}, (round_, answers)
        assert Run.objects.filter(ended_at__isnull=True, is_queued=False).count() == 1
        for _ in range(8):
            timers.sweep_starts()
            drive(stage)
        assert not Run.objects.filter(ended_at__isnull=True).exists(), "none is left behind"
    sound(*Run.objects.all())


def test_a_start_that_crosses_an_end_is_either_first_or_let_in(name: str, stage: Stage) -> None:
    for _ in range(many(12, 4)):
        first = run_of(name)
        answers = at_once(
            partial(begin, name, "queue"), partial(lifecycle.cancel, first.id, by=OLGA, justification=WHY)
        )
        assert [a for a in answers if isinstance(a, Exception)] == []
        (left,) = Run.objects.filter(ended_at__isnull=True)
        assert not left.is_queued and left.ready_at is not None, "without any sweep: the second one saw the other"
        assert drive(stage) == "completed"


def test_the_database_holds_it_no_matter_who_writes(name: str) -> None:
    run_of(name)
    second = run_of(name, "queue")
    with pytest.raises(IntegrityError, match="runs_run_one_of_key"):
        Run.objects.filter(pk=second.pk).update(is_queued=False)


def test_a_row_that_says_otherwise_than_the_journal_is_found(name: str, stage: Stage) -> None:
    first = run_of(name, start_at=now() + timedelta(hours=1), start_before=now() + timedelta(hours=2))
    second = run_of(name, "queue")
    sound(first, second)
    damage: list[tuple[Run, dict[str, Any], str]] = [
        (first, {"business_key": "another"}, "business_key"),
        (first, {"start_at": None}, "start_at"),
        (first, {"start_before": now()}, "start_before"),
        (first, {"ready_at": now()}, "before its earliest"),
        (second, {"is_queued": False, "business_key": "x"}, "is_queued"),
        (second, {"ready_at": now()}, "is ready"),
    ]
    for run, changed, word in damage:
        with transaction.atomic():
            Run.objects.filter(pk=run.pk).update(**changed)
            assert any(word in found for found in problems(run)), changed
            transaction.set_rollback(True)


def test_a_queued_run_is_not_claimed_even_if_its_row_says_ready(name: str, stage: Stage) -> None:
    first, second = run_of(name, text="wait"), run_of(name, "queue")
    due(second)
    assert stage.drive() == "parked" and stage.claim() == []
    assert state(first) == "waiting_event"
