"""Runs go to their archive whole, come back exactly, and are lost at no point between."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.files.storage import FileSystemStorage
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from durableagents import Context, End
from durableagents.contrib.retention import archiving, listed, places, restoring
from durableagents.contrib.retention.models import Archive, Deletion, Pending, Restoration, Round
from durableagents.contrib.seals import sealing
from durableagents.contrib.seals.verification import check_database
from durableagents.identity.auth import issue_key
from ledger.errors import NotFound
from ledger.verification.archives import Sought
from ledger.verification.registers import verify_registers
from runs import failpoints
from runs.models import Run
from runs.services import lifecycle
from tests.contrib.casework.stories import escalated
from tests.contrib.evidence.conftest import bundle_of, verified
from tests.contrib.evidence.rewriting import files_of
from tests.contrib.releases.moving import moved, old, renamed
from tests.contrib.releases.test_migrating import go, parked
from tests.contrib.retention.keeping import SHELL, age, archived, ended, gone, hold, picture, policy, problems
from tests.contrib.standing_approvals.stories import allowed_again
from tests.contrib.step_up.stories import signed
from tests.integration.api.conftest import person
from tests.integration.runs import stories
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, at_once, calling, fresh
from tests.integration.runs.test_children import everything
from tests.tampering import as_stored
from tests.tiers import many
from tests.world import OLGA, Asked, Done, Notes, Toolbox, agent_of


def registers() -> list[str]:
    return [problem for listed in verify_registers() for problem in listed.problems]


def test_a_run_comes_back_exactly_as_it_went(stage: Stage, tools: Toolbox) -> None:
    situations = Situations(stage, tools)
    gate = situations.at_gate()
    stage.decide(gate)
    stage.settle(gate)
    runs = [gate, situations.completed(), situations.failed(), situations.cancelled(), ended(stage, tools)]
    for run in runs:
        age(run.pk)
    before = {run.pk: (picture(run.pk), problems(run.pk)) for run in runs}
    assert archiving.run().archived == 0 and not gone(gate.pk)  # no policy: nothing ever goes
    policy()
    done = archiving.run()
    assert (done.archived, done.problems) == (5, [])
    assert gone(*before) and not Pending.objects.exists()
    assert [problems(run_id) for run_id in before] == [[]] * 5
    assert registers() == []
    with pytest.raises(NotFound):
        lifecycle.find(gate.pk)
    for run_id in before:
        assert restoring.restore(run_id, by=SHELL, justification="asked for") == [run_id]
    assert {run_id: (picture(run_id), problems(run_id)) for run_id in before} == before
    assert registers() == [] and archiving.run().archived == 0  # their period began again
    with pytest.raises(restoring.NotArchived, match="is in the database"):
        restoring.restore(gate.pk, by=SHELL, justification="again")


def test_related_runs_go_and_come_together(stage: Stage, tools: Toolbox) -> None:
    async def child(state: Notes, ctx: Context) -> End:
        return End(Done(ref=state.asked.text))

    async def parent(state: Notes, ctx: Context) -> End:
        return End((await ctx.child(little, Asked(text="small"))).ref)

    little = agent_of(child, name="little", output=Done)
    run = stage.start(agent_of(parent, name="big"), text="x")
    everything(stage)
    family = [run.pk, *Run.objects.filter(parent=run.pk).values_list("pk", flat=True)]
    assert len(family) == 2
    before = [picture(each) for each in family]
    policy()
    age(run.pk)
    assert archiving.run().archived == 0  # its child ended today
    age(family[1])
    assert archiving.run().archived == 2 and gone(*family)
    assert archived(family[0]).place == archived(family[1]).place
    restoring.restore(family[1], by=SHELL, justification="asked for")
    assert [set(each) for each in map(picture, family)] == [set(each) for each in before]


# --- killed, full, down, altered --------------------------------------------------------------------------------------


def killed_at(point: str) -> int:
    """Archive in a process of its own, which kills itself at a point; return how it ended."""
    connection.close()
    child = os.fork()
    if child == 0:
        try:
            failpoints.hit = _kill_at(point)  # type: ignore[assignment]
            archiving.run()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def _kill_at(point: str) -> Any:
    def hit(passed: str, tool: str = "", run: str = "") -> None:
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return hit


def test_killed_between_any_two_steps_nothing_is_lost(stage: Stage, tools: Toolbox, folder: Path) -> None:
    policy(delete_days=1)
    for point in ("RP1", "RP2", "RP3", "RP4", "RP5"):
        run = ended(stage, tools, point)
        before = picture(run.pk)
        assert killed_at(point) == signal.SIGKILL, point
        entry = Archive.objects.filter(run_id=run.pk).first()
        if point in ("RP4", "RP5"):
            assert entry is not None and problems(run.pk) == [] and registers() == [], point
        else:
            assert entry is None and picture(run.pk) == before, point
        assert archiving.run().problems == [], point
        assert gone(run.pk) and not Pending.objects.exists() and problems(run.pk) == [], point
        restoring.restore(run.pk, by=SHELL, justification="compare")
        assert picture(run.pk) == before, point
    age_restorations()
    assert archiving.run().archived == 5
    age_archives()
    assert killed_at("RP6") == signal.SIGKILL
    assert Deletion.objects.count() == 1 and len(files(folder)) >= 1
    assert archiving.run().problems == [] and Deletion.objects.count() == 5
    assert not Pending.objects.exists()
    assert not any(Path(folder, row.place).exists() for row in Archive.objects.all())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def age_restorations() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE retention_restoration SET at = at - interval '40 days'")
        cursor.execute("SET session_replication_role = origin")


def age_archives() -> None:
    """Let all archives have been made two days earlier, with valid codes."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE retention_archive SET at = at - interval '2 days'")
        for row in Archive.objects.all():
            row.seal()
            row.save(update_fields=["code"])
        cursor.execute("SET session_replication_role = origin")


def test_a_deletion_takes_files_of_earlier_archives_too(stage: Stage, tools: Toolbox, folder: Path) -> None:
    policy(delete_days=1)
    run, other = ended(stage, tools), ended(stage, tools)
    for n in range(3):
        assert archiving.run().problems == []
        if n < 2:
            restoring.restore(run.pk, by=SHELL, justification="asked for")
            Run.objects.filter(pk=run.pk).update(priority=n + 1)  # so that its next file is another one
            age_restorations()
    assert len(files(folder)) == 4 == len(set(Archive.objects.values_list("place", flat=True)))
    kept = hold(run_id=other.pk)
    age_archives()
    assert archiving.run().deleted == 1
    assert files(folder) == [Path(folder, archived(other.pk).place)] and kept.pk
    assert problems(run.pk) == problems(other.pk) == []


def test_without_a_good_file_nothing_is_removed(
    stage: Stage, tools: Toolbox, folder: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy()
    run = ended(stage, tools)
    before = picture(run.pk)

    def configured(archive: Path | None) -> None:
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"archive": archive})

    inside = settings.DURABLEAGENTS.data / "archive"
    inside.mkdir(exist_ok=True)
    for place, why in (
        (None, "Set DURABLEAGENTS_ARCHIVE"),
        (folder / "no", "not an existing"),
        (inside, "holds the keys"),
    ):
        configured(place)
        with pytest.raises(places.StorageUnavailable, match=why):
            archiving.run()
    configured(folder)

    def full(self: Any, name: str, content: Any) -> str:
        Path(self.path(name)).parent.mkdir(exist_ok=True)
        Path(self.path(name)).write_bytes(content.read(100))
        raise OSError(28, "No space left on device")

    def lossy(self: Any, name: str, content: Any) -> str:
        Path(self.path(name)).parent.mkdir(exist_ok=True)
        Path(self.path(name)).write_bytes(content.read()[:-1] + b"x")
        return name

    with monkeypatch.context() as patched:
        patched.setattr(FileSystemStorage, "_save", full)
        with pytest.raises(places.StorageUnavailable, match=r"can't be stored: No space left"):
            archiving.run()
        assert files(folder) == [] and "No space left" in str(Round.objects.latest("pk").problems)
        patched.setattr(FileSystemStorage, "_save", lossy)
        (problem,) = archiving.run().problems
        assert "was altered: its SHA-256 is" in problem
    assert picture(run.pk) == before and not Archive.objects.exists()
    assert archiving.run().archived == 1 and gone(run.pk)


def test_a_run_that_moves_meanwhile_stays(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    policy()
    run = Situations(stage, tools).failed()
    age(run.pk)

    def retried(point: str, tool: str = "", run: str = "") -> None:
        if point == "RP2":
            lifecycle.retry(UUID(run), by=OLGA, justification="once more")

    monkeypatch.setattr(failpoints, "hit", retried)
    (problem,) = archiving.run().problems
    assert problem == f"run {run.pk} stays: it has not ended"
    assert not Archive.objects.exists() and fresh(run).state == "running"
    moved = ended(stage, tools)

    def touched(point: str, tool: str = "", run: str = "") -> None:
        if point == "RP2":
            Run.objects.filter(pk=run).update(**as_stored(Run, about="something else"))

    monkeypatch.setattr(failpoints, "hit", touched)
    (problem,) = archiving.run().problems
    assert "runs_run holds 1 row(s) of it, the archive 1" in problem
    assert not Archive.objects.exists() and not gone(moved.pk)


def test_a_missing_or_altered_archive_is_named(stage: Stage, tools: Toolbox, folder: Path) -> None:
    policy()
    run = ended(stage, tools)
    sealing.seal_all()
    archiving.run()
    assert list(check_database()) == [] and registers() == []
    path = Path(folder, archived(run.pk).place)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], b"", None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        (problem,) = problems(run.pk)
        assert path.name in problem and ("was altered" in problem or "is missing" in problem)
        assert registers() == [problem]
        with pytest.raises(restoring.RestoreRefused, match="Nothing was restored"):
            restoring.restore(run.pk, by=SHELL, justification="asked for")
        assert gone(run.pk)
        path.write_bytes(whole)
    with connection.cursor() as cursor:  # a run that vanished without an entry
        cursor.execute(
            "SET session_replication_role = replica; DELETE FROM retention_archive; "
            "SET session_replication_role = origin"
        )
    assert [str(each) for each in check_database() if each.run_id == run.pk and "the run is missing" in each.text]


def test_verification_goes_on_without_the_storage(
    stage: Stage, tools: Toolbox, folder: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    policy()
    other = ended(stage, tools, days=0)
    run = stage.start(calling(tools, "order", "a desk"))
    sealing.seal_all()
    stage.settle(run)
    age(run.pk)
    archiving.run()
    assert gone(run.pk) and list(check_database()) == [] == registers()
    folder.rename(folder.with_name("away"))  # the volume is not mounted
    for configured in (folder, None):
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"archive": configured})
        for command in (("ledger", "verify", "--all"), ("seals", "verify")):
            with pytest.raises(SystemExit):
                call_command(*command)
            out = capsys.readouterr().out
            assert f"run {run.pk}: the archive" in out and "can't be compared with the register: " in out, out
            assert "DURABLEAGENTS_ARCHIVE" in out and str(other.pk) not in out
            assert ("1 archive(s) can't be read: " in out) == (command[0] == "ledger")
        assert problems(other.pk) == []


def test_only_the_functions_remove_and_only_what_is_due(
    stage: Stage, tools: Toolbox, postgres: Mapping[str, str]
) -> None:
    """The runtime role can't delete rows of runs; the functions that can check for themselves."""
    rule = policy()
    run, young = ended(stage, tools), ended(stage, tools, days=2)
    entries = archiving._written(run.pk, archiving.Progress())
    forged = Archive.objects.model(**{f.attname: getattr(entries[0], f.attname) for f in Archive._meta.concrete_fields})
    forged.pk, forged.run_id, forged.family = None, young.pk, young.pk
    as_runtime = "SET SESSION AUTHORIZATION durableagents"
    with connection.cursor() as cursor:

        def refused(statement: str, values: list[Any], why: str) -> None:
            with pytest.raises(DatabaseError, match=why), transaction.atomic():
                cursor.execute(statement, values)

        forged.save(force_insert=True)
        cursor.execute(as_runtime)
        try:
            refused("DELETE FROM ledger_event WHERE run_id = %s", [run.pk], "permission denied")
            refused("SET pgtrigger.ignore = '{}'; DELETE FROM runs_run WHERE id = %s", [run.pk], "permission denied")
            refused("INSERT INTO retention_allowance VALUES (1, 1, now())", [], "permission denied")
            refused("SELECT retention_take(%s)", [young.pk], "it is due on")
            for entry in entries:
                entry.seal()
                entry.save(force_insert=True)
            refused("SELECT retention_clear(%s, 10)", [run.pk], "was not taken")
            refused("SELECT retention_forget(%s)", [run.pk], "its rows are still here")
            refused("SELECT retention_take(%s)", [run.pk], "may not remove runs")
            cursor.execute("RESET SESSION AUTHORIZATION")
            cursor.execute("INSERT INTO retention_allowance VALUES (1, 60, now())")
            cursor.execute(as_runtime)
            refused("SELECT retention_take(%s)", [run.pk], "younger than what workers may remove")
            cursor.execute("RESET SESSION AUTHORIZATION")
            cursor.execute("UPDATE retention_allowance SET days = 20")
            cursor.execute(as_runtime)
            archiving.finish(archiving.Progress())
            assert not gone(run.pk)
            cursor.execute("SELECT retention_take(%s)", [run.pk])
            archiving.finish(archiving.Progress())
            assert gone(run.pk) and rule.pk
            restoring.restore(run.pk, by=SHELL, justification="as the web process")
            assert not gone(run.pk)
        finally:
            cursor.execute("RESET SESSION AUTHORIZATION")


@pytest.mark.timeout(900)
def test_many_runs_go_in_small_transactions_while_others_work(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy()
    runs = [ended(stage, tools, str(n)) for n in range(many(1000, 40))]
    monkeypatch.setattr(archiving, "CLEAR_ROWS", 7)
    others: list[Run] = []

    def work(point: str, tool: str = "", run: str = "") -> None:
        """Between any two steps of archiving, another run is started and driven to its end."""
        if point in ("RP2", "RP4", "RP5") and len(others) < 20:
            others.append(stage.start(calling(tools, "order", "meanwhile")))
            stage.settle(others[-1])

    monkeypatch.setattr(failpoints, "hit", work)
    assert archiving.run(limit=10).archived == 10
    assert archiving.run().archived == len(runs) - 10 and gone(*(run.pk for run in runs))
    assert {fresh(run).state for run in others} == {"completed"} and len(others) == 20
    assert registers() == []


def test_two_processes_archive_each_run_once(stage: Stage, tools: Toolbox) -> None:
    policy()
    runs = [ended(stage, tools, str(n)) for n in range(8)]
    found = at_once(*[archiving.run] * 3)
    assert [each.problems for each in found] == [[]] * 3
    assert sum(each.archived for each in found) == 8 == Archive.objects.count()
    assert gone(*(run.pk for run in runs)) and registers() == []


STORIES = (
    lambda stage, tools: stories.through(stage, tools, stories.everything(tools)),
    stories.failed,
    stories.answered,
    stories.cancelled,
    signed,
    escalated,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: getattr(story, "__name__", "all"))
def test_rows_of_every_kind_come_back(stage: Stage, tools: Toolbox, story: Any) -> None:
    run = story(stage, tools)
    members = archiving.family_of(run.pk)
    for each in members:
        age(each)
    ended_runs = set(Run.objects.filter(pk__in=members, ended_at__isnull=False).values_list("pk", flat=True))
    before = {each: (picture(each), problems(each)) for each in members}
    policy()
    done = archiving.run()
    if ended_runs != set(members):
        assert not gone(*members)
        return
    assert done.problems == [] and done.archived == len(members) and gone(*members), done
    assert registers() == []
    restoring.restore(members[0], by=SHELL, justification="asked for")
    assert {each: (picture(each), problems(each)) for each in members} == before


def test_a_migrated_run_comes_back(stage: Stage, tools: Toolbox) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    assert moved(run).is_moved
    go(run)
    assert stage.settle(run) == "completed"
    age(run.pk)
    before = picture(run.pk)
    policy()
    assert archiving.run().archived == 1
    restoring.restore(run.pk, by=SHELL, justification="asked for")
    assert picture(run.pk) == before


def test_runs_with_standing_approvals_stay(stage: Stage, tools: Toolbox) -> None:
    run = allowed_again(stage, tools)
    age(run.pk)
    policy()
    assert archiving.run().archived == 0 and not gone(run.pk)


def test_an_archived_run_gives_the_same_evidence_as_before(stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    run = ended(stage, tools)
    before = files_of(bundle_of(run.pk))
    policy()
    archiving.run()
    aud = person("aud", "auditor")
    browser = Client()
    browser.force_login(aud)
    assert f"/runs/{run.pk}/evidence" in browser.get(f"/archive/{run.pk}").content.decode()
    assert browser.get(f"/runs/{run.pk}/evidence").status_code == 200
    key = {"Authorization": f"Bearer {issue_key(aud, 'test')}"}
    answer: Any = Client().get(f"/api/v1/runs/{run.pk}/evidence", headers=key)
    content = b"".join(answer.streaming_content)
    after = files_of(content)
    differ = {name for name in before | after if before.get(name) != after.get(name)}
    assert differ <= {"manifest.json", "signature.json", "record.html", f"runs/{run.pk}/seals.json", "keys.json"}
    (tmp_path / "bundle.zip").write_bytes(content)
    assert verified(tmp_path / "bundle.zip").code == 0 and gone(run.pk)
    assert Restoration.objects.count() == 0 and problems(run.pk) == []


def test_archived_runs_are_found_by_business_key_and_tag_through_an_index(stage: Stage) -> None:
    made = (
        "INSERT INTO retention_archive (run_id, family, agent, version, state, tags, effects, business_key, created_at,"
        " ended_at, seq, chain, rows, policy, place, digest, size, at) SELECT gen_random_uuid(), gen_random_uuid(),"
        " 'a', '1', 'completed', jsonb_build_array('tag' || n % 500, 'all'), '[]', CASE WHEN n % 2 = 0 THEN 'key' || n"
        " ELSE '' END, now(), now(), 1, '', '{}', 1, '', '', 1, now() FROM generate_series(1, 20000) n"
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(made)
        cursor.execute("ANALYZE retention_archive")
        for sought, index in (
            (Sought(business_key="key42"), "retention_archive_key"),
            (Sought(tag="tag7"), "retention_archive_tags"),
        ):
            with CaptureQueriesContext(connection) as captured:
                listed.search(sought, 100)  # finds none of them: these rows have no codes
            cursor.execute("EXPLAIN " + captured[0]["sql"].replace("%", "%%"))
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert index in plan, plan
        transaction.set_rollback(True)
