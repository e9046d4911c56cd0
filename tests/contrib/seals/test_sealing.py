"""Sealing in PostgreSQL: what moved, one sealer at a time, late commits, clocks, and keys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import Error, IntegrityError, connection, transaction

from durableagents.contrib.seals import keyring, sealing
from durableagents.contrib.seals.keyring import SealKeyProblem, key_path, next_key_path, rotate
from durableagents.contrib.seals.models import Seal, SealedHead, SealKey
from durableagents.contrib.seals.own_features import SEAL
from durableagents.contrib.seals.sealing import Moment, SealsDamaged, find_moved, search_start
from durableagents.contrib.seals.verification import check_database, leaves_of
from durableagents.env import write_private
from ledger.models import Head
from runs.background import duties
from tests.cases import each_case
from tests.conftest import database_urls
from tests.contrib.seals.conftest import go_on, seal
from tests.tampering import run_sql, tamper

pytestmark = pytest.mark.django_db
NewRun = Callable[..., UUID]


def findings() -> list[str]:
    return [str(each) for each in check_database()]


def sealed(number: int) -> set[tuple[UUID, int]]:
    return {leaf[:2] for leaf in leaves_of(number)}


def test_a_seal_covers_what_moved_since_the_one_before(new_run: NewRun) -> None:
    one, two = new_run(), new_run(5)
    assert seal() == 1 and sealed(1) == {(one, 3), (two, 5)}
    go_on(two)
    assert seal() == 1 and sealed(2) == {(two, 6)}
    assert bytes(Seal.objects.get(pk=2).previous) == Seal.objects.get(pk=1).record.hash
    assert bytes(SealedHead.objects.get(run_id=two, seq=6).hash) == bytes(Head.objects.get(pk=two).chain)
    assert findings() == []


def test_no_seal_is_made_when_nothing_moved(new_run: NewRun) -> None:
    assert seal() == 0 and not SealKey.objects.exists() and not key_path().exists()
    new_run()
    assert (seal(), seal(), Seal.objects.count()) == (1, 0, 1)


def test_many_heads_become_several_seals(new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MAX_LEAVES", 3)
    runs = {(new_run(1), 1) for _ in range(8)}
    assert seal() == 3 and sealed(1) | sealed(2) | sealed(3) == runs
    assert findings() == [] and seal() == 0


def test_a_run_is_walked_to_that_the_search_by_time_misses(new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the clock had jumped back and forth between two seals."""
    monkeypatch.setattr(sealing, "WALKED_HEADS", 2)
    monkeypatch.setattr(sealing, "SINCE", sealing.SINCE.replace("at >=", "at > 'infinity' AND at >="))
    runs = [new_run() for _ in range(7)]
    assert seal() == 1
    go_on(runs[3])
    assert sum(seal() for _ in range(10)) == 1 and sealed(2) == {(runs[3], 4)}


# --- late commits and clocks (several connections) --------------------------------------------------------------------


@pytest.fixture
def other(postgres: Mapping[str, str], transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """Another process's connection, with a transaction open."""
    with psycopg.connect(database_urls(postgres)["runtime"]) as link:
        yield link
        link.rollback()


def append_by(link: psycopg.Connection[Any], run_id: UUID) -> None:
    """Append an event on another connection; the caller commits."""
    link.execute(
        "SELECT ledger_append_as(%s, 'x', ARRAY[ROW('RunPaused', NULL, 0, NULL, '{}'::bytea, NULL, sha256(''))]"
        "::ledger_line[], ARRAY[]::ledger_fact[])",
        [run_id],
    )


def without_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "WALKED_HEADS", 1)
    monkeypatch.setattr(sealing, "_WALK", "SELECT run_id, seq, chain FROM ledger_head WHERE false")


def test_a_transaction_that_commits_late_is_not_missed(
    new_run: NewRun, other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_walk(monkeypatch)
    late, busy = new_run(), new_run()
    assert seal() == 1
    append_by(other, late)
    for number in range(2, 6):  # several seals pass, none of which sees it
        monkeypatch.setattr(sealing, "_MARGIN", timedelta(0))
        go_on(busy, number)
        assert seal() == 1 and late not in {run_id for run_id, _ in sealed(number)}
    other.commit()
    assert seal() == 1 and sealed(6) == {(late, 4)}


@each_case(
    "oldest_open, begins_at",
    [
        (40, 3),  # nothing was open when the last one was made
        (39, 2),  # a transaction that began after the second
        (30, 2),
        (29, 1),
        (20, 1),
        (19, None),  # before the first
    ],
)
def test_the_search_begins_before_any_open_transaction(
    new_run: NewRun, oldest_open: int, begins_at: int | None
) -> None:
    run_id = new_run()
    for number in (1, 2, 3):
        go_on(run_id, number)
        seal()
        tamper("UPDATE seals_seal SET next_xid = %s WHERE number = %s", 10 * number + 10, number)
    tamper("UPDATE seals_seal SET oldest_open_xid = %s WHERE number = 3", oldest_open)
    found = search_start(Moment.now(), Seal.objects.get(pk=3))
    assert found == (begins_at and Seal.objects.get(pk=begins_at).at - sealing._MARGIN)


def test_a_seal_keeps_which_transactions_were_open(new_run: NewRun, other: psycopg.Connection[Any]) -> None:
    run_id = new_run()
    append_by(other, run_id)
    new_run()
    (xid,) = other.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() or (0,)
    assert seal() == 1
    assert Seal.objects.get().oldest_open_xid <= xid < Seal.objects.get().next_xid


def test_a_clock_that_was_set_back_is_recorded_and_harmless(
    new_run: NewRun, transactional_db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_walk(monkeypatch)
    run_id = new_run()
    seal()
    tamper("UPDATE seals_seal SET at = at + interval '1 hour'")  # made by the clock as it was before
    key = keyring.signing_key()[1]
    row = Seal.objects.get(pk=1)
    tamper("UPDATE seals_seal SET signature = %s", key.sign(row.record.message))
    go_on(run_id)
    assert search_start(Moment.now(), row) is None, "all heads are compared once"
    assert run_sql(f"SELECT {sealing.IS_DUE}") == [(True,)], "a seal from the future does not put off the next"
    assert seal() == 1 and sealed(2) == {(run_id, 4)}
    assert "the clock was set back by" in caplog.text and Seal.objects.get(pk=2).at < row.at
    assert findings() == []
    go_on(run_id, 2)  # and from there on the search begins at the time after the jump
    found = search_start(Moment.now(), Seal.objects.get(pk=2))
    assert found is None or found < Seal.objects.get(pk=2).at
    assert seal() == 1 and sealed(3) == {(run_id, 5)}


def test_all_heads_are_looked_at_when_no_seal_helps(new_run: NewRun, transactional_db: None) -> None:
    """A restored dump has other transaction numbers."""
    new_run()
    seal()
    tamper("UPDATE seals_seal SET oldest_open_xid = 3, next_xid = 5")
    last = Seal.objects.get()
    assert search_start(Moment.now(), last) is None and list(find_moved(Moment.now(), last)) == []


def test_the_search_reads_few_pages_of_a_long_journal(new_run: NewRun, transactional_db: None) -> None:
    """The events of the last seconds are found by the index on their time, not by a scan."""
    run_id = new_run()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "INSERT INTO ledger_event (run_id, seq, epoch, at, kind, attempt, clear, prev_hash, hash) "
            "SELECT gen_random_uuid(), 1, 0, now() - interval '1 day' + n * interval '1 second', 'x', 0, "
            "decode(repeat('00', 200), 'hex'), sha256(''), sha256('') FROM generate_series(1, 60000) n"
        )
        cursor.execute("RESET session_replication_role; SELECT brin_summarize_new_values('ledger_event_by_time')")
        cursor.execute("SELECT relpages FROM pg_class WHERE relname = 'ledger_event'")
        seal()
        go_on(run_id)
        with transaction.atomic():
            last = Seal.objects.order_by("-number").first()
            since = search_start(Moment.now(), last)
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sealing.SINCE, {"since": since})
            plan = cursor.fetchone()[0][0]["Plan"]
        cursor.execute("SELECT pg_relation_size('ledger_event') / 8192")
        (pages,) = cursor.fetchone()
    read = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert pages > 2000 and read < 400, (pages, read)


# --- one sealer at a time ---------------------------------------------------------------------------------------------


def test_two_sealers_never_fork_the_chain(new_run: NewRun, transactional_db: None) -> None:
    runs = [new_run() for _ in range(6)]
    seal()
    start, errors = threading.Barrier(4), []

    def work(n: int) -> None:
        try:
            start.wait(30)
            for turn in range(15):
                go_on(runs[n], turn)
                sealing.seal_all()
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert errors == []
    seal()
    assert findings() == [] and Seal.objects.count() > 1
    last = {leaf.run_id: leaf.seq for leaf in (each.leaf for each in SealedHead.objects.order_by("seq"))}
    assert last == dict(Head.objects.values_list("run_id", "seq"))


def test_a_sealer_passes_while_another_one_seals(new_run: NewRun, other: psycopg.Connection[Any]) -> None:
    new_run()
    other.execute(f"SELECT pg_advisory_xact_lock({keyring.LOCK})")
    assert seal() == 0
    other.commit()
    assert seal() == 1


def test_the_database_takes_no_second_seal_after_the_same_one(new_run: NewRun) -> None:
    new_run()
    seal()
    first = Seal.objects.get()
    first.number = 2
    with pytest.raises(IntegrityError, match="one_successor"), transaction.atomic():
        first.save(force_insert=True)


@each_case("table", ["seals_seal", "seals_sealedhead", "seals_sealkey", "seals_delivery"])
@each_case("verb", ["DELETE FROM {}", "TRUNCATE {}", "UPDATE {} SET {} = {}"])
def test_nothing_that_was_sealed_can_be_changed_by_the_owner(new_run: NewRun, table: str, verb: str) -> None:
    new_run()
    seal()
    column = {"seals_seal": "number", "seals_sealedhead": "seq", "seals_sealkey": "number"}.get(table, "id")
    if table == "seals_delivery":
        run_sql(
            "INSERT INTO seals_delivery (witness, first, last, at, outcome, error) "
            "VALUES ('w', 1, 1, now(), 'taken', '')"
        )
    with pytest.raises(Error, match=r"(?i)can ?not"), transaction.atomic():
        run_sql(verb.format(table, column, column))


def test_the_job_is_declared_and_due(new_run: NewRun) -> None:
    assert SEAL in duties.known
    assert run_sql(f"SELECT {sealing.IS_DUE}") == [(True,)]
    new_run()
    seal()
    assert run_sql(f"SELECT {sealing.IS_DUE}, {duties.question}")[0][0] is False


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_missing_key_stops_sealing_and_is_never_replaced(
    new_run: NewRun, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run()
    seal()
    path = key_path()
    assert path.stat().st_mode & 0o777 == 0o600
    kept = path.read_text()
    path.unlink()
    go_on(run_id)
    with pytest.raises(SealKeyProblem, match=r"is missing: restore the seal\.key"):
        seal()
    monkeypatch.setattr(sealing, "_due_at", 0.0)
    monkeypatch.setattr(sealing, "_complain_at", 0.0)
    assert sealing.seal_when_due() == 0 and f"nothing is sealed: the seals' private key {path}" in caplog.text
    assert not path.exists() and Seal.objects.count() == 1
    assert any("is missing" in each for each in findings())
    write_private(path, kept)
    assert seal() == 1 and findings() == []


def test_another_key_is_refused(new_run: NewRun) -> None:
    run_id = new_run()
    seal()
    key_path().unlink()
    write_private(key_path(), "A" * 43 + "\n")
    go_on(run_id)
    with pytest.raises(SealKeyProblem, match="is not the private part of seal key 1, whose public key"):
        seal()
    with pytest.raises(SealKeyProblem):
        rotate("it was copied by mistake", "os:root")
    assert any("the file or the record was replaced" in each for each in findings())


def test_a_key_rotates_on_the_record(new_run: NewRun) -> None:
    run_id = new_run()
    seal()
    before = key_path().read_text()
    key = rotate("an administrator left", "os:root")
    assert (key.number, key.reason, key.by) == (2, "an administrator left", "os:root")
    assert key_path().read_text() != before and not next_key_path().exists()
    assert key_path().stat().st_mode & 0o777 == 0o600
    go_on(run_id)
    assert seal() == 1 and Seal.objects.get(pk=2).key == 2 and findings() == []


def test_a_rotation_that_was_interrupted_is_finished(new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = new_run()
    seal()

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keyring, "replace_private", die)
        with pytest.raises(KeyboardInterrupt):
            rotate("an administrator left", "os:root")
    assert SealKey.objects.count() == 2 and findings() == []
    go_on(run_id)
    assert seal() == 1 and not next_key_path().exists() and findings() == []


def test_a_rotation_that_was_not_recorded_changes_nothing(new_run: NewRun) -> None:
    run_id = new_run()
    seal()
    write_private(next_key_path(), "A" * 43 + "\n")
    go_on(run_id)
    assert seal() == 1 and SealKey.objects.count() == 1
    rotate("for real now", "os:root")
    go_on(run_id)
    assert seal() == 1 and findings() == []


def test_a_key_that_the_old_one_did_not_sign_is_found(new_run: NewRun) -> None:
    new_run()
    seal()
    rotate("an administrator left", "os:root")
    tamper("UPDATE seals_sealkey SET reason = 'none' WHERE number = 2")
    assert "seal key 2 was not signed by key 1: no holder of the private key authorised it" in findings()


def test_nothing_is_built_on_a_forged_seal(new_run: NewRun) -> None:
    run_id = new_run()
    seal()
    run_sql(
        "INSERT INTO seals_seal SELECT number + 1, at, key, root, root, count, signature, oldest_open_xid, next_xid "
        "FROM seals_seal"
    )
    go_on(run_id)
    with pytest.raises(SealsDamaged, match="the last seal, 2, was not made with this installation's key"):
        seal()


def test_a_run_can_not_be_hidden_by_a_head_that_was_never_sealed(new_run: NewRun) -> None:
    """The application may insert there; such a row keeps the run from being sealed, and verification names it."""
    run_id = new_run()
    seal()
    run_sql("INSERT INTO seals_sealedhead VALUES (%s, 1000, sha256(''), 2)", run_id)
    assert f"run {run_id}: event 1000 was sealed in seal 2, which is missing" in findings()
    assert any(each.startswith(f"run {run_id}: event 1000 was sealed in seal 2, but is missing") for each in findings())


def test_a_run_of_the_lowest_id_is_sealed(new_run: NewRun) -> None:
    new_run(run_id=UUID(int=0))
    new_run(run_id=uuid4())
    assert seal() == 1 and Seal.objects.get().count == 2


def test_appending_does_no_more_than_without_this_app(db: None) -> None:
    """No index on heads, whose updates must stay in their page, and no trigger on what a step writes."""
    assert run_sql("SELECT indexname FROM pg_indexes WHERE tablename = 'ledger_head'") == [("ledger_head_pkey",)]
    fired = run_sql(
        "SELECT DISTINCT t.tgname FROM pg_trigger t WHERE NOT t.tgisinternal AND t.tgtype & 4 > 0 "
        "AND t.tgrelid IN ('ledger_event'::regclass, 'ledger_head'::regclass) AND t.tgname LIKE '%%seal%%'"
    )
    assert fired == []
    (method,) = run_sql("SELECT indexdef FROM pg_indexes WHERE indexname = 'ledger_event_by_time'")[0]
    assert "USING brin (at)" in method
