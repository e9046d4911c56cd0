"""Erasing a run's content leaves nothing readable, a chain that verifies, and a record of who did it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction

from durableagents import Agent
from durableagents.contrib.encryption import erasure, master_keys
from durableagents.contrib.encryption.erasure import NotErasable
from durableagents.contrib.encryption.models import Erasure, RunKey
from durableagents.contrib.encryption.run_keys import RunKeys
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.starting_again import StartAgainRequest, read_remains, start_again
from ledger import codec
from ledger import events as e
from ledger.actors import Actor
from ledger.append import append
from ledger.erasure import Erased
from ledger.errors import Forbidden, JustificationRequired, NotFound
from ledger.models import ActRecord, Event, Head, LedgerEntry
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs import features
from runs.management.shell import command_actor
from runs.models import Run
from runs.services import lifecycle
from tests.conftest import database_urls
from tests.contrib.encryption.erasing import CANARY, dumped, filled, found_in, read_with_all_keys
from tests.contrib.encryption.test_payloads import cold
from tests.integration.approvals.setup import boss, somebody
from tests.integration.runs.stage import Stage, at_once, calling, fresh, problems
from tests.integration.runs.test_children import everything, helper, parent_of
from tests.tampering import without_triggers
from tests.world import OLGA, SHOP, Toolbox, agent_of, ends_with

__all__ = ["helper"]  # a fixture
WHY = "Request of the person concerned, ticket 4711"


@pytest.fixture
def runtime(stage: Stage, postgres: Mapping[str, str]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_urls(postgres)["runtime"], autocommit=True) as link:
        yield link


@pytest.fixture(autouse=True)
def _own_keys() -> Iterator[None]:
    cold()
    yield
    master_keys.forget()
    cold()


def erase(run: Run | UUID, *, by: Actor | None = None, **more: Any) -> erasure.ErasureResult:
    run_id = run if isinstance(run, UUID) else run.pk
    return erasure.erase(run_id, by=by or command_actor(), justification=WHY, **more)


def ended(stage: Stage, text: str = CANARY) -> Run:
    run = stage.start(agent_of(ends_with({"told": text})), text=text)
    stage.settle(run)
    return fresh(run)


def test_nothing_of_an_erased_run_is_readable_and_its_chain_verifies(stage: Stage, tools: Toolbox) -> None:
    run = filled(stage, tools)
    assert problems(run) == [] and len(read_with_all_keys(run)) > 10
    hashes = list(Event.objects.filter(run_id=run.pk).order_by("seq").values_list("hash", flat=True))
    erase(run)
    assert found_in(dumped()) == [] and read_with_all_keys(run) == []
    cold()
    assert read_with_all_keys(run) == []
    result = verify(run.pk)
    assert result.problems == [] and result.notes[0].startswith("Content erased on ") and WHY in result.notes[0]
    kept = Event.objects.filter(run_id=run.pk).order_by("seq").values_list("hash", flat=True)
    assert list(kept)[:-1] == hashes
    assert [found for each in verify_registers() for found in each.problems] == []
    acts = ActRecord.objects.filter(action="erase")
    assert [(act.subject, act.justification, act.after["problems_before"]) for act in acts] == [
        (f"run {run.pk}", WHY, 0)
    ]


def test_a_second_erasure_gives_the_same_answer_and_changes_nothing(stage: Stage) -> None:
    run = ended(stage)
    first = erase(run)
    before = Head.objects.get(pk=run.pk).seq
    again = erasure.erase(run.pk, by=command_actor(), justification="another reason")
    assert (again.entry, again.is_new, first.is_new) == (first.entry, False, True)
    assert Head.objects.get(pk=run.pk).seq == before and Erasure.objects.filter(run_id=run.pk).count() == 1
    other = ended(stage)
    answers = at_once(*[lambda: erase(other)] * 3)
    assert sum(isinstance(answer, erasure.ErasureResult) and answer.is_new for answer in answers) == 1
    assert verify(other.pk).problems == []


def test_what_must_not_be_erased_is_refused_by_name_and_stays(stage: Stage, tools: Toolbox) -> None:
    waiting = stage.start(calling(tools, "pay", amount=2000))
    assert stage.drive() == "parked"
    run = ended(stage)
    user = somebody("olga", "operator")
    for refused, act in [
        (Forbidden, lambda: erase(run, by=user)),
        (NotFound, lambda: erase(uuid4())),
        (JustificationRequired, lambda: erasure.erase(run.pk, by=command_actor(), justification=" ")),
        (NotErasable, lambda: erase(waiting)),
    ]:
        with pytest.raises(refused):
            act()
    assert "it is waiting for a person" in str(_refusal(waiting))
    held = features.Feature(name="a hold", removal_refusals=(lambda _: "legal hold 7",))
    features.install(held)
    try:
        assert "legal hold 7" in str(_refusal(run))
    finally:
        del features.installed["a hold"]
    for n, answer in ((1, "1 of its calls has no known outcome: settle it on"), (2, "2 of its calls have no known")):
        fact = {"slot": f"s{n}", "fact": "pending", "tool": "mail", "replay_class": "unsafe", "actor": "", "seq": 1}
        LedgerEntry.objects.create(run_id=run.pk, at=run.created_at, **fact)
        assert answer in str(_refusal(run))
    assert RunKey.objects.filter(run_id__in=[run.pk, waiting.pk]).count() == 2
    assert not Erasure.objects.exists() and not ActRecord.objects.filter(action="erase").exists()


def _refusal(run: Run) -> NotErasable:
    with pytest.raises(NotErasable) as refused:
        erase(run)
    return refused.value


def test_a_run_started_without_encryption_is_refused(stage: Stage, settings: Any) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"encryption_keys": ["none"]})
    master_keys.forget()
    cold()
    assert "it has no key" in str(_refusal(ended(stage)))


def family(stage: Stage, helper: Agent) -> tuple[Run, Run]:
    """Return a run and its child, which have ended."""
    run = stage.start(parent_of(helper, CANARY))
    everything(stage)
    return fresh(run), Run.objects.get(parent=run.pk)


def test_runs_with_copies_are_named_or_erased_with_it(stage: Stage, helper: Agent) -> None:
    run, below = family(stage, helper)
    assert str(below.pk) in str(_refusal(run)) and RunKey.objects.filter(run_id=run.pk).exists()
    assert erase(run, with_children=True).others == (below.pk,)
    assert [verify(each.pk).problems for each in (run, below)] == [[], []]
    assert read_with_all_keys(run) == [] == read_with_all_keys(below)


def test_a_child_alone_says_what_remains_and_its_parent_still_verifies(stage: Stage, helper: Agent) -> None:
    run, below = family(stage, helper)
    assert any(str(run.pk) in what for what in erase(below).remains)
    assert verify(run.pk).problems == [] and read_with_all_keys(below) == []
    assert erase(run).others == ()


def test_nothing_can_be_done_with_an_erased_run(stage: Stage, tools: Toolbox) -> None:
    run = ended(stage)
    erase(run)
    for act in [
        lambda: lifecycle.retry(run.pk, by=OLGA, justification=WHY),
        lambda: lifecycle.cancel(run.pk, by=OLGA, justification=WHY),
        lambda: forking.fork(run.pk, forking.ForkRequest(1), by=OLGA, justification=WHY),
        lambda: start_again(run.pk, StartAgainRequest([], input={"text": "x"}), by=OLGA, justification=WHY),
        lambda: read_remains(fresh(run)),
    ]:
        with pytest.raises(Erased, match=WHY):
            act()
    output = StringIO()
    with pytest.raises(SystemExit):
        call_command("runs", "to-test", str(run.pk), stderr=output)
    assert "Content erased on" in output.getvalue()
    with pytest.raises(Exception, match="never goes on"), transaction.atomic():
        Run.objects.filter(pk=run.pk).update(state="running")
    with pytest.raises(Erased):
        append(run.pk, e.RunPaused(by="x", payload={"justification": "late"}), by=SHOP)


def test_other_processes_drop_the_key(stage: Stage) -> None:
    run = ended(stage)
    there = RunKeys()
    codec.use_cipher(there)
    assert CANARY in str(read_with_all_keys(run))
    held = there._known[run.pk]
    erase(run)
    there._known[run.pk] = held  # as in a process that was told nothing
    there._look_at = 0.0
    assert read_with_all_keys(run) == [] and run.pk not in there._known


@pytest.mark.parametrize(
    "step", ["SELECT encryption_erase", "SELECT encryption_recode", "INSERT INTO ledger_actrecord"]
)
def test_an_erasure_cut_short_is_undone_as_a_whole(stage: Stage, tools: Toolbox, step: str) -> None:
    run = filled(stage, tools) if "recode" in step else ended(stage)
    before = {table: rows for table, rows in dumped().items() if not table.startswith("django_")}

    def cut(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        done = execute(sql, params, many, context)
        if step.lower() in str(sql).replace('"', "").lower():
            raise KeyboardInterrupt
        return done

    with pytest.raises(KeyboardInterrupt), connection.execute_wrapper(cut):
        erase(run)
    after = dumped()
    assert [table for table, rows in before.items() if sorted(after[table].split()) != sorted(rows.split())] == []
    cold()
    assert CANARY in str(read_with_all_keys(run)) and verify(run.pk).problems == []
    erase(run)
    assert verify(run.pk).problems == []


def test_the_runtime_role_erases_only_ended_runs_and_only_on_record(
    stage: Stage, tools: Toolbox, runtime: psycopg.Connection[Any]
) -> None:
    run = ended(stage)
    waiting = stage.start(calling(tools, "pay", amount=2000))
    assert stage.drive() == "parked"
    for statement in [
        "DELETE FROM encryption_runkey",
        "UPDATE encryption_runkey SET wrapped = ''",
        "INSERT INTO encryption_erasure (run_id, seq, by, role, reason, at, tx) "
        "VALUES (gen_random_uuid(), 1, '', '', '', now(), 1)",
        "DELETE FROM encryption_erasure",
        "UPDATE runs_run SET erased_at = now()",
        f"SELECT encryption_erase('{run.pk}')",
        f"SELECT encryption_erase('{waiting.pk}')",
        f"SELECT encryption_recode('{run.pk}', 'ledger_actrecord', '{{}}')",
        f"SELECT encryption_blank('{run.pk}')",
    ]:
        with pytest.raises(psycopg.Error) as refused:
            runtime.execute(statement)
        assert refused.value.sqlstate in ("42501", "DA087"), statement
    append(run.pk, e.ContentErased(by="user:x", role="admin", reason="so"), by=SHOP)
    runtime.execute(f"SELECT encryption_erase('{run.pk}')")
    assert fresh(run).erased_at is not None and Erasure.objects.get(run_id=run.pk).reason == "so"
    assert "has no record of the act" in " ".join(verify(run.pk).problems)
    with pytest.raises(psycopg.Error):
        runtime.execute(f"SELECT encryption_recode('{run.pk}', 'ledger_actrecord', '{{}}')")
    assert RunKey.objects.filter(run_id=waiting.pk).exists()


def test_a_key_that_is_gone_without_a_record_is_a_problem(stage: Stage) -> None:
    run, other, third = ended(stage), ended(stage), ended(stage)
    with without_triggers() as cursor:
        cursor.execute("DELETE FROM encryption_runkey WHERE run_id = %s", [run.pk])
        cursor.execute(
            "WITH gone AS (DELETE FROM encryption_runkey WHERE run_id = %s RETURNING run_id) "
            "INSERT INTO encryption_erasure (run_id, seq, by, role, reason, at, tx) "
            "SELECT run_id, 3, 'user:ada', 'admin', 'so', now(), 1 FROM gone",
            [other.pk],
        )
    kept = RunKey.objects.get(run_id=third.pk)
    erase(third)
    kept.save(force_insert=True)
    cold()
    assert "can't be read" in verify(run.pk).problems[0]
    assert "its last event is not an erasure" in " ".join(verify(other.pk).problems)
    assert "it was restored" in " ".join(verify(third.pk).problems)
    with without_triggers() as cursor:
        cursor.execute("DELETE FROM encryption_erasure WHERE run_id = %s", [third.pk])
    found = " ".join(problem for each in verify_registers() for problem in each.problems)
    assert f"erased run {third.pk}, but the erasure register has no entry" in found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", [50, pytest.param(1000, marks=pytest.mark.long)])
def test_many_erased_runs_are_unreadable_in_a_dump(stage: Stage, number: int) -> None:
    agent = agent_of(ends_with({"told": CANARY}))
    runs = [stage.start(agent, text=f"{CANARY} {n}") for n in range(number)]
    for run in runs:
        lifecycle.cancel(run.pk, by=OLGA, justification=CANARY)
    assert all(CANARY in str(read_with_all_keys(run)) for run in runs)
    for run in runs:
        erase(run)
    assert found_in(dumped()) == []
    cold()
    assert [run.pk for run in runs if read_with_all_keys(run)] == []
    assert [verify(run.pk).problems for run in runs[:: number // 10]] == [[]] * 10


def test_two_administrators_where_that_is_set(stage: Stage) -> None:
    from durableagents.contrib.change_control import services as changes
    from durableagents.contrib.change_control import setting as guards
    from durableagents.contrib.change_control.setting import GuardsBody
    from ledger.errors import Proposed

    anna, bob = boss(), somebody("bob", is_superuser=True, is_staff=True)
    run = ended(stage)
    guards.require(GuardsBody(families=["erasure", "roles"], justification=WHY), by=anna)
    with pytest.raises(Proposed) as waits:
        erase(run, by=anna)
    assert RunKey.objects.filter(run_id=run.pk).exists() and CANARY in str(read_with_all_keys(run))
    changes.apply(waits.value.change, by=bob, justification="I agree")
    assert fresh(run).erased_at is not None and read_with_all_keys(run) == []
    assert verify(run.pk).problems == []
    assert [found for each in verify_registers() for found in each.problems] == []


def test_the_command_says_what_was_done_and_what_remains(stage: Stage) -> None:
    run, output = ended(stage), StringIO()
    call_command("runs", "erase", str(run.pk), "--reason", WHY, stdout=output)
    assert (
        "Content erased on" in output.getvalue()
        and "vacuumed" in output.getvalue()
        and "remains: metadata" in output.getvalue()
    )
    other = ended(stage)
    with pytest.raises(SystemExit):
        call_command("runs", "erase", str(other.pk), "--reason", WHY, "--justification", "other", stderr=StringIO())
    assert fresh(other).erased_at is None
    call_command("runs", "erase", str(other.pk), "--justification", WHY, stdout=StringIO())
    assert fresh(other).erased_at is not None
    for name, more in ((str(run.pk), ["--reason", ""]), ("none", ["--reason", WHY]), (str(uuid4()), ["--reason", WHY])):
        with pytest.raises(SystemExit):
            call_command("runs", "erase", name, *more, stderr=StringIO())
