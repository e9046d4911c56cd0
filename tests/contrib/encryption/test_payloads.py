"""Runs are encrypted, go on while keys rotate, and stop without loss while a key is missing."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from durableagents import Context, End
from durableagents.contrib.encryption import master_keys, own_features, rotation, run_keys
from durableagents.contrib.encryption.master_keys import KeyUnavailable
from durableagents.contrib.encryption.models import RunKey
from durableagents.contrib.encryption.run_keys import KeyDamaged, RunKeys
from durableagents.identity.auth import issue_key
from ledger import codec
from ledger import events as e
from ledger.append import append
from ledger.errors import RecordDamaged
from ledger.models import ActRecord, Event
from ledger.verification.runs import verify
from runs import features
from runs.engine.content.reads import KeptRead
from runs.fleet.agent_versions import missing_key_of
from runs.journal.cache import ReadCache
from runs.journal.lookups import Lookups
from runs.models import Checkpoint, Run
from runs.queries.families import status_heads
from runs.services import lifecycle
from runs.workers import failover
from tests.integration.api.conftest import Api, person
from tests.integration.runs.hosts import TidyHost, working
from tests.integration.runs.stage import Stage, calling, events, fresh, kinds, output, waiting
from tests.world import OLGA, SHOP, Item, Notes, Toolbox, agent_of

CANARY = "Kanarienvogel"
TEXT = CANARY + ": " + "the quick brown fox jumps over the lazy dog. " * 8


def cold() -> None:
    """Forget all keys, as a process that has just started."""
    keys = RunKeys()
    codec.use_cipher(keys)
    features.install(own_features.feature(keys))


@pytest.fixture(autouse=True)
def _own_keys() -> Iterator[None]:
    yield
    master_keys.forget()
    cold()


@pytest.fixture
def keys_are(settings: Any, tmp_path: Path) -> Any:
    """Set the sources: `master`, or the name of a key file, which is made."""

    def set_to(*names: str) -> None:
        sources = []
        for name in names:
            if name not in ("master", "none") and not (tmp_path / name).exists():
                (tmp_path / name).write_text(base64.urlsafe_b64encode(name.encode().ljust(32)).decode())
            sources.append(name if name in ("master", "none") else f"file:{tmp_path / name}")
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"encryption_keys": sources})
        master_keys.forget()
        cold()

    return set_to


def stored(*columns: str) -> bytes:
    """Return all bytes of these columns, given as table.column."""
    found = []
    with connection.cursor() as cursor:
        for table, column in (each.split(".") for each in columns):
            cursor.execute(f"SELECT {column} FROM {table}")
            values = (value for row in cursor.fetchall() for value in row)
            found += [bytes(value) for value in values if isinstance(value, (bytes, memoryview))]
    return b"\n".join(found)


def talking(tools: Toolbox) -> Any:
    """Return an agent that keeps its input in its state, hands it to a tool and returns it."""

    async def first(state: Notes, ctx: Context) -> Any:
        await ctx.call(tools.order, Item(name=state.item, amount=1))
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End(state.item)

    return agent_of(first, second, tools=tools.all())


def test_no_payload_of_a_run_is_readable_in_the_database(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calling(tools, "order", TEXT))
    cold()
    stage.settle(run)
    assert fresh(run).state == "completed"
    in_use = Event.objects.filter(run_id=run.pk, sealed__isnull=False)
    assert in_use.count() > 3
    assert {bytes(event.sealed or b"")[:1] for event in in_use} == {codec.ENCRYPTED}
    assert {bytes(state)[:1] for state in Checkpoint.objects.values_list("state", flat=True)} <= {codec.ENCRYPTED}
    assert CANARY.encode() not in stored("ledger_event.sealed", "runs_checkpoint.state", "runs_cachedread.sealed")
    cold()
    assert TEXT in str(events(run, e.ToolInvoked)[0].payload)
    assert verify(run.id).problems == []


def test_a_run_without_a_key_goes_on_in_the_clear(stage: Stage, tools: Toolbox, keys_are: Any) -> None:
    keys_are("none")
    run = stage.start(calling(tools, "order", TEXT))
    keys_are("master")
    stage.settle(run)
    assert fresh(run).state == "completed" and not RunKey.objects.filter(run_id=run.pk).exists()
    kinds = {
        bytes(sealed)[:1] for sealed in Event.objects.filter(run_id=run.pk).values_list("sealed", flat=True) if sealed
    }
    assert kinds <= {codec.RAW, codec.ZSTD}
    assert verify(run.id).problems == []


def test_a_start_that_is_undone_leaves_no_key(stage: Stage, tools: Toolbox) -> None:
    agent = calling(tools, "order")
    before = RunKey.objects.count()
    with transaction.atomic():
        lifecycle.start(agent.graph_id, {}, by=SHOP)
        transaction.set_rollback(True)
    assert RunKey.objects.count() == before


def test_keys_rotate_while_runs_are_under_way(stage: Stage, tools: Toolbox, keys_are: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(rotation, "BATCH", 2)
    keys_are("master")
    runs = [stage.start(calling(tools, "order", f"{TEXT} {i}")) for i in range(5)]
    old = rotation.in_use()
    keys_are("new", "master")
    (new,) = [key.id for key in [master_keys.current()] if key]
    later = stage.start(calling(tools, "order", TEXT))
    assert rotation.counts() == {old[0]: 5, new: 1}
    progress = rotation.begin()
    rotating = rotation.go_on(progress)
    next(rotating)
    rotating.close()  # it was interrupted
    assert (progress.total, progress.done) == (5, 2)
    stage.settle(runs[0])
    out = io.StringIO()
    call_command("encryption", "rotate", reason="quarterly", stdout=out)
    assert f"done: 3 of 3 runs changed; master keys needed now: {new}" in out.getvalue()
    assert rotation.in_use() == [new]
    act = ActRecord.objects.latest("id")
    assert (act.action, act.justification, act.after) == ("key_rotation", "quarterly", {"runs": 3})
    keys_are("new")
    monkeypatch.setattr(master_keys, "_READERS", {"file": master_keys._of_file})  # without the old one
    for run in (*runs, later):
        stage.settle(run)
        assert fresh(run).state == "completed" and verify(run.id).problems == []
    call_command("encryption", "rotate", reason="again", stdout=out)
    assert out.getvalue().splitlines()[-1].startswith("done: 0 of 0 runs changed")


def test_a_key_that_nobody_uses_yet_is_rotated_to_on_request_only(stage: Stage, tools: Toolbox, keys_are: Any) -> None:
    keys_are("master")
    one, other = (stage.start(calling(tools, "order", TEXT)) for _ in range(2))
    keys_are("new", "master")
    with pytest.raises(CommandError, match="No run was started under master key"):
        call_command("encryption", "rotate", reason="too early", stdout=io.StringIO())
    RunKey.objects.filter(run_id=one.pk).update(wrapped=b"")
    with pytest.raises(CommandError, match=f"the keys of 1 runs are damaged: {one.pk}"):
        call_command("encryption", "rotate", "--known", reason="all have it", stdout=io.StringIO())
    assert RunKey.objects.get(run_id=other.pk).master == getattr(master_keys.current(), "id", "")


def test_a_run_that_two_processes_try_to_create_has_the_key_that_is_stored(stage: Stage, tools: Toolbox) -> None:
    """A worker whose start of a child was refused may claim the child after another worker has created it."""
    refused, created, run_id = RunKeys(), RunKeys(), uuid4()
    with refused.birth(run_id):
        assert refused.encrypt(run_id, b"x", b"") is not None
    with created.birth(run_id) as statements:
        encrypted = created.encrypt(run_id, b"created", b"")
    with connection.cursor() as cursor:
        for statement, values in statements:
            cursor.execute(statement, values)
    assert encrypted is not None and refused.decrypt(run_id, encrypted, b"") == b"created"
    again = refused.encrypt(run_id, b"later", b"")
    assert again is not None and created.decrypt(run_id, again, b"") == b"later"


def test_without_its_master_key_nothing_is_read_written_or_lost(
    stage: Stage, tools: Toolbox, keys_are: Any, tmp_path: Path
) -> None:
    keys_are("own")
    run = stage.start(calling(tools, "order", TEXT))
    assert rotation.refusal() is None
    (tmp_path / "own").rename(tmp_path / "away")
    master_keys.forget()
    cold()
    before = stored("ledger_event.sealed")
    with pytest.raises(master_keys.KeyUnavailable, match="own' can't be read"):
        lifecycle.cancel(run.id, by=OLGA, justification="no key")
    with pytest.raises(master_keys.KeyUnavailable):
        stage.start(calling(tools, "order"))
    refusal = rotation.refusal()
    assert refusal is not None and "own' can't be read: " in refusal
    with pytest.raises(CommandError, match="can't be read"):
        call_command("encryption", "status", stdout=io.StringIO())
    assert stored("ledger_event.sealed") == before and Run.objects.count() == 1
    (tmp_path / "away").rename(tmp_path / "own")
    master_keys.forget()
    stage.settle(run)
    assert fresh(run).state == "completed" and verify(run.id).problems == []


@pytest.mark.parametrize("is_gone", [False, True], ids=["another run's", "gone"])
def test_a_run_with_a_damaged_key_stops_and_says_so(stage: Stage, tools: Toolbox, is_gone: bool) -> None:
    one, other = (stage.start(calling(tools, "order", TEXT)) for _ in range(2))
    row = RunKey.objects.filter(run_id=one.pk)
    kept = bytes(row.get().wrapped)
    if is_gone:
        row.delete()
    else:
        row.update(wrapped=RunKey.objects.get(run_id=other.pk).wrapped)
    cold()
    assert any("lacks the key of its payloads" in problem for problem in verify(one.id).problems)
    with pytest.raises(RecordDamaged, match="lacks the key of its payloads"):
        lifecycle.cancel(one.id, by=OLGA, justification="no key")
    with pytest.raises(KeyDamaged):
        stage.drive()
    assert failover.stop(one.pk, stage.worker.id, "the key of its payloads is gone")
    assert [wait.detail["reason"] for wait in waiting(one)] == ["damaged_journal"]
    stage.settle(other)
    assert fresh(other).state == "completed" and verify(other.id).problems == []
    RunKey.objects.update_or_create(
        run_id=one.pk, defaults={"wrapped": kept, "master": rotation.in_use()[0], "made_at": one.created_at}
    )
    cold()
    lifecycle.retry(one.id, by=OLGA, justification="restored from the backup")
    stage.settle(one)
    assert fresh(one).state == "completed"


def test_a_worker_reads_the_keys_of_other_runs_whose_records_it_needs(stage: Stage, tools: Toolbox) -> None:
    one, other = (stage.start(calling(tools, "order", TEXT)) for _ in range(2))
    undone = e.EffectUndone(
        slot="0.1/2", of_run="", of_slot="0.1/1", of_attempt=0, tool="order", payload={"result": TEXT}
    )
    append(one.pk, undone, by=OLGA)
    kept = KeptRead({"rate": TEXT}, one.created_at, str(one.pk), "0.1/1")
    pool = stage.wait(stage.connected())
    cache, place = ReadCache(pool), (str(one.pk), "0.1/1", 0)

    async def keep() -> None:
        cache.keep(b"key", "rate", kept, timedelta(hours=1))
        await cache.settle()

    cold()
    assert stage.wait(Lookups(pool, other.pk).undone([place])) == {place}
    cold()
    stage.wait(keep())
    cold()
    found = stage.wait(cache.find(b"key"))
    assert found is not None and found.result == {"rate": TEXT}
    assert CANARY.encode() not in stored("runs_cachedread.sealed", "ledger_event.sealed")


def test_few_keys_are_kept_and_evicted_ones_are_read_again(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_keys, "MAX_KNOWN", 2)
    runs = [stage.start(calling(tools, "order", f"{TEXT} {i}")) for i in range(4)]
    for run in runs:
        stage.settle(run)
    assert [output(run) for run in runs] == [output(run) for run in runs]
    assert all(verify(run.id).problems == [] for run in runs)


def test_encryption_takes_less_than_a_fifth_more_room(stage: Stage, tools: Toolbox, keys_are: Any) -> None:
    def size() -> int:
        run = stage.start(calling(tools, "order", TEXT))
        stage.settle(run)
        with connection.cursor() as cursor:
            cursor.execute("SELECT sum(pg_column_size(e.*)) FROM ledger_event e WHERE run_id = %s", [run.pk])
            return int(cursor.fetchone()[0])

    keys_are("none")
    in_clear = size()
    keys_are("master")
    assert size() < 1.2 * in_clear


def test_the_api_says_that_a_key_is_missing(stage: Stage, tools: Toolbox, keys_are: Any, tmp_path: Path) -> None:
    keys_are("own")
    run = stage.start(calling(tools, "order", TEXT))
    (tmp_path / "own").unlink()
    master_keys.forget()
    cold()
    operator = Api(issue_key(person("olga", "operator"), "test"))
    answer = operator.get(f"runs/{run.pk}/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "key-unavailable")


def test_run_is_left_to_a_worker_that_has_its_key(stage: Stage, tools: Toolbox, keys_are: Any) -> None:
    keys_are("own")
    lacking: list[TidyHost] = []
    keys = RunKeys()
    codec.use_cipher(keys)

    async def prepare(link: Any, run_ids: Collection[UUID]) -> None:
        if any(asyncio.get_running_loop() is host._loop for host in lacking):
            raise KeyUnavailable("master key 0815 is missing from DURABLEAGENTS_ENCRYPTION_KEYS")
        await keys.prepare(link, run_ids)

    features.install(replace(own_features.feature(keys), before_read=(prepare,)))
    run = stage.start(calling(tools, "order", TEXT))

    def until(is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < end, kinds(run)
            time.sleep(0.05)

    with working(stage, stage.hire()) as poor:
        lacking.append(poor)
        until(lambda: kinds(run)[-1] == "RunReleased")
        (released,) = events(run, e.RunReleased)
        assert released.reason == "key missing: master key 0815 is missing from DURABLEAGENTS_ENCRYPTION_KEYS"
        blocked = missing_key_of(fresh(run), status_heads([run.pk]).get())
        assert blocked == "the last worker lacks its key: master key 0815 is missing from DURABLEAGENTS_ENCRYPTION_KEYS"
        poor.ring()
        time.sleep(2.5)  # it looks twice more
        assert kinds(run).count("RunClaimed") == 1, "it doesn't take it again"
        other = stage.start(calling(tools, "order"))
        with working(stage, stage.hire()):
            until(lambda: fresh(run).state == fresh(other).state == "completed")
    assert len(tools.outside.seen("order")) == 2
    assert verify(run.pk).problems == verify(other.pk).problems == []
