"""Every recovery is recorded: cause, position, duration, and what was repeated or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Context, End
from ledger import events as e
from ledger.models import Event
from runs.engine.journal import Batch
from runs.fleet import incidents
from runs.models import Incident, Process, Run
from runs.services.lifecycle import pause
from runs.workers import failover
from runs.workers.failover import MAX_DEATHS, SOLO_FROM
from tests.integration.runs.stage import Stage, events, fresh, head, now, output
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of, ends_with


def dies(stage: Stage, run: Run, point: str = "", tool: str = "") -> Any:
    """Let a worker die at a crash point (by default right after its claim) and be found dead."""
    worker = stage.hire(is_dead=True)
    if point:
        stage.kill_at = [(point, tool)]
        assert stage.drive(worker) == "killed"
    else:
        stage.claim(worker)
    assert failover.worker_died(worker.id, "reaped") == 1
    Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
    return worker


def told(run: Run) -> list[incidents.IncidentRow]:
    return incidents.described(list(Incident.objects.filter(run_id=run.id).order_by("seq")))


def buying(tools: Toolbox, name: str) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.call(tools.look, Item(name="first"))
        return End([first.ref, (await ctx.call(getattr(tools, name), Item(name="a"))).ref])

    return agent_of(node, tools=tools.all())


def test_a_recovery_says_why_from_whom_and_by_whom_it_went_on(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = dies(stage, run)
    (before,) = told(run)
    assert (before.epoch_before, before.epoch_after, before.claimed_at, before.stepped_at) == (1, None, None, None)
    assert stage.drive() == "completed"
    (it,) = told(run)
    assert (it.cause, it.proof, it.worker, it.pid, it.reached) == ("proof", "reaped", worker.id, worker.pid, "claimed")
    assert (it.epoch_before, it.epoch_after, it.is_counted, it.deaths, it.calls) == (1, 2, True, 1, [])
    assert it.last_sign_at <= it.detected_at <= it.freed_at <= it.claimed_at <= it.stepped_at
    assert it.silent_seconds >= 0 and it.down_seconds >= 0


@pytest.mark.parametrize(
    ("point", "reached", "fates"),
    [
        ("CP2", "intent_durable", True),
        ("CP4", "intent_durable", True),
        ("CP6", "result_durable", False),
        ("CP1", "result_durable", False),
    ],
)
@pytest.mark.parametrize("name", ["order", "mail"])
def test_it_says_how_far_the_run_had_come_and_what_was_made_of_unknown_outcomes(
    stage: Stage, tools: Toolbox, name: str, point: str, reached: str, fates: bool
) -> None:
    run = stage.start(buying(tools, name))
    dies(stage, run, point, name)
    how = stage.drive()
    (it,) = told(run)
    (lost,) = events(run, e.WorkerLost)
    assert (it.reached, lost.reached) == (reached, reached)
    assert it.skipped == (2 if point == "CP6" else 1), "what the journal answers"
    fate = "repeated" if name == "order" else "refused"
    assert [(c.tool, c.fate) for c in it.calls] == ([(name, fate)] if fates else [])
    assert (lost.call is not None) is fates
    assert how == ("parked" if fates and name == "mail" else "completed")
    if fates and name == "mail":
        assert "a person was asked" in it.calls[0].why
    elif fates:
        assert "same key" in it.calls[0].why


_SLOT = "1#0/1"
_CALL = e.ToolInvoked(
    slot=_SLOT, tool="order", replay_class="idempotent_with_key", requested_hash="h", executed_hash="h"
)
_WAIT = e.WaitOpened(slot=_SLOT, wait="webhook", deadline="2030-01-01T00:00:00+00:00", n=0)
# A worker's commits before its death, and how far the run was.
STOOD: dict[str, tuple[list[list[e.Event]], str]] = {
    "nothing": ([], "claimed"),
    "an intent": ([[_CALL]], "intent_durable"),
    "an intent that was not sent": ([[_CALL], [e.ToolNotDispatched(slot=_SLOT, tool="order", n=1)]], "intent_durable"),
    "a result": ([[_CALL], [e.ToolReturned(slot=_SLOT, tool="order", payload={"ref": "x"})]], "result_durable"),
    "a signal": ([[e.SignalTaken(slot=_SLOT, name="go", n=0)]], "result_durable"),
    "what a hook found": (
        [[_CALL], [e.ToolReconciled(slot=_SLOT, tool="order", verdict="happened", by="hook")]],
        "result_durable",
    ),
    "a visit": ([[e.VisitEntered(node="n", visit=2)]], "visit_entered"),
    "a wait": ([[_CALL], [e.ToolAccepted(slot=_SLOT, tool="order")], [_WAIT]], "wait_opened"),
    "a receipt": ([[_CALL], [e.ToolAccepted(slot=_SLOT, tool="order")]], "wait_opened"),
    "a question": ([[e.WaitOpened(slot=_SLOT, wait="input", deadline=_WAIT.deadline, n=0)]], "wait_opened"),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("behind", ["nothing", "the same commit", "a wish"])
@pytest.mark.parametrize("stood", STOOD)
def test_how_far_a_run_had_come_does_not_go_by_what_else_is_on_record(stage: Stage, stood: str, behind: str) -> None:
    commits, reached = STOOD[stood]
    run = stage.start(agent_of(ends_with(1)))
    worker = stage.hire(is_dead=True)
    journal = stage.take(run, worker)
    if behind == "the same commit":
        *before, last = commits or [[]]
        commits = [*before, [*last, e.BranchesOpened(slot="1#0/9", branches=2)]]
    for written in commits:
        stage.wait(journal.commit(Batch(written)))
    if behind == "a wish":
        pause(run.id, by=OLGA, justification="a look first")
    assert failover.worker_died(worker.id, "reaped") == 1
    assert (told(run)[0].reached, events(run, e.WorkerLost)[0].reached) == (reached, reached)


def test_of_a_call_of_unknown_outcome_it_keeps_what_later_versions_look_for(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buying(tools, "order"))
    dies(stage, run, "CP4", "order")
    intent = Event.objects.filter(run_id=run.id, fact="intent").latest("seq")
    kept = {
        "slot": intent.slot,
        "attempt": 0,
        "tool": "order",
        "replay_class": "idempotent_with_key",
        "intent_at": intent.at.isoformat(),
    }
    assert Incident.objects.get(run_id=run.id).in_doubt == [kept]
    assert told(run)[0].calls[0].shown() == kept | {"fate": "open", "why": "not handled yet"}


def test_call_known_to_its_hook_is_not_repeated(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    from durableagents import Happened
    from tests.world import Done

    outside.hook = lambda args, call: Happened(Done(ref="found"))
    run = stage.start(buying(tools, "hooked_mail"))
    dies(stage, run, "CP4", "hooked_mail")
    assert stage.drive() == "completed" and output(run)[1] == "found"
    assert [c.fate for c in told(run)[0].calls] == ["found"]


def test_a_second_death_is_an_incident_of_its_own(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buying(tools, "order"))
    dies(stage, run, "CP4", "order")
    dies(stage, run)
    assert stage.drive() == "completed"
    first, second = told(run)
    assert (first.epoch_after, second.epoch_after) == (2, 3) and first.stepped_at is None
    assert [[c.fate for c in each.calls] for each in (first, second)] == [["repeated"], ["repeated"]]


# --- poison ---


def poisoned_rounds(stage: Stage, poison: Run, rounds: int, *, dies_at: Callable[[], None] = lambda: None) -> None:
    """Let workers claim all they can; the one with the poison run dies with all its runs, the others drive theirs."""
    for _ in range(rounds):
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
        worker = stage.hire(is_dead=True)
        claimed = stage.claim(worker, limit=50)
        if poison.id in {c.run_id for c in claimed}:
            failover.worker_died(worker.id, "reaped")
        else:
            for one in claimed:
                stage.drive_claimed(one, worker)


def test_one_poison_run_stops_and_ten_innocents_that_died_with_it_do_not(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    poison, *innocents = [stage.start(agent) for _ in range(11)]
    poisoned_rounds(stage, poison, SOLO_FROM)
    assert all(fresh(run).is_solo and head(run).deaths == SOLO_FROM for run in (poison, *innocents)), (
        "nobody knows yet who it was"
    )
    poisoned_rounds(stage, poison, 40)
    assert {str(fresh(run).state) for run in innocents} == {"completed"}
    assert str(fresh(poison).state) == "waiting_human" and not any(fresh(run).is_solo for run in innocents)
    (stop,) = events(poison, e.OperatorNeeded)
    assert stop.reason == "poison" and len(stop.payload["history"]) == MAX_DEATHS - 1
    last = told(poison)[-1]
    assert (last.deaths, last.is_stopped) == (MAX_DEATHS, True)


def test_a_death_that_a_run_did_not_die_alone_never_stops_it(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    for _ in range(SOLO_FROM):
        dies(stage, run)
    Run.objects.filter(pk=run.pk).update(is_solo=False)  # as if claimed together with others
    for _ in range(MAX_DEATHS):
        dies(stage, run)
        Run.objects.filter(pk=run.pk).update(is_solo=False)
    assert head(run).deaths == SOLO_FROM and str(fresh(run).state) == "running"


def test_a_run_to_be_driven_alone_is_not_given_to_who_asks_for_many(stage: Stage) -> None:
    from runs.engine.agents import registry
    from runs.journal.claims import claim

    run = stage.start(agent_of(ends_with(1)))
    Run.objects.filter(pk=run.pk).update(is_solo=True)

    async def ask(*, solo: bool) -> int:
        return len(await claim(await stage.connected(), stage.worker, registry.graph_ids(), 10, solo=solo))

    assert [stage.wait(ask(solo=False)), stage.wait(ask(solo=True))] == [0, 1]


@pytest.mark.parametrize("cause", [Incident.Cause.SUSPICION, Incident.Cause.HOST_GONE, Incident.Cause.OPERATOR])
def test_only_a_proven_death_is_held_against_a_run(stage: Stage, cause: Incident.Cause) -> None:
    run = stage.start(agent_of(ends_with(1)))
    for _ in range(MAX_DEATHS + 1):
        worker = stage.hire()
        stage.claim(worker)
        failover.worker_died(worker.id, "not seen", cause)
    assert head(run).deaths == 0 and stage.drive() == "completed"


def test_a_run_that_came_to_a_rest_begins_its_count_again(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(60)
        return End("woke")

    run = stage.start(agent_of(node))
    for _ in range(SOLO_FROM):
        dies(stage, run)
    assert stage.drive() == "parked"
    assert (head(run).deaths, fresh(run).is_solo) == (0, False)


def test_the_record_outlives_the_process_row_and_can_not_be_changed(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = dies(stage, run)
    Process.objects.filter(pk=worker.id).delete()
    assert told(run)[0].pid == worker.pid
    with pytest.raises(Exception, match="Cannot update or delete"):
        Incident.objects.filter(run_id=run.id).update(cause="suspicion")


def test_detection_is_told_apart_from_the_last_sign_of_life(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    worker = stage.hire(is_dead=True)
    stage.claim(worker)
    Process.objects.filter(pk=worker.id).update(last_heartbeat_at=now() - timedelta(seconds=40))
    failover.worker_died(worker.id, "reaped")
    assert told(run)[0].silent_seconds >= 40


def test_drain_incident_is_held_against_nobody(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """A real host, drained while a keyed call is under way."""
    import asyncio

    from tests.integration.runs.hosts import TidyHost

    run = stage.start(buying(tools, "order"))
    worker = stage.hire()
    host = TidyHost(slots=5, incarnation=worker.id)

    async def hang(call: Any) -> None:
        host.drain(0.0)
        await asyncio.Event().wait()

    outside.trouble("order", hang)
    stage.wait(host.serve())
    (it,) = told(run)
    assert (it.cause, it.reached, it.is_counted, it.deaths) == ("drain_cut", "intent_durable", False, 0)
    assert stage.drive() == "completed"
    (it,) = told(run)
    assert [(c.tool, c.fate) for c in it.calls] == [("order", "repeated")] and it.epoch_after == 2
    assert head(run).deaths == 0
