"""Witnesses: files and HTTPS, outages, catching up, damage and lies; and what operators are values."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import call_command

from durableagents.contrib.seals import status, witnesses
from durableagents.contrib.seals.keyring import key_path, read_key
from durableagents.contrib.seals.models import Delivery, Seal, Witness
from durableagents.contrib.seals.own_features import feature
from durableagents.contrib.seals.records import SealLine, public_bytes
from durableagents.contrib.seals.verification import check_witness, every_seal, every_seal_witness
from durableagents.contrib.seals.witnesses import append_lines, deliver, is_due, status_of
from durableagents.seal_witness import SealWitness, read_witness
from ledger.verification.registers import verify_registers
from tests.cases import each_case
from tests.contrib import s3
from tests.contrib.seals.conftest import go_on, seal
from tests.tampering import run_sql, tamper

pytestmark = pytest.mark.django_db
NewRun = Callable[..., UUID]


def path_of(witness: SealWitness) -> Path:
    assert witness.path is not None
    return witness.path


def lines_of(witness: SealWitness) -> list[bytes]:
    return path_of(witness).read_bytes().splitlines()


def about(witness: SealWitness) -> list[str]:
    return [str(each) for each in check_witness(path_of(witness))]


def wait_over() -> None:
    """Let every witness be tried again."""
    Witness.objects.update(due_at="2000-01-01T00:00:00Z")


def due(witness: SealWitness) -> bool:
    return bool(run_sql(f"SELECT {is_due(witness)}")[0][0])


def several_seals(new_run: NewRun, count: int) -> UUID:
    run_id = new_run()
    for n in range(count):
        go_on(run_id, n + 1)
        assert seal() == 1
    return run_id


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_gets_a_line_for_each_seal(new_run: NewRun, witness: SealWitness) -> None:
    several_seals(new_run, 3)
    assert due(witness)
    assert deliver(witness) == 3 and not due(witness) and deliver(witness) == 0
    assert [SealLine.from_json(line).seal.number for line in lines_of(witness)] == [1, 2, 3]
    assert path_of(witness).stat().st_mode & 0o777 == 0o600
    (row,) = Delivery.objects.all()
    assert (row.witness, row.first, row.last, row.outcome) == (witness.name, 1, 3, "taken")
    assert about(witness) == []


def test_a_file_catches_up_after_an_outage_in_batches(
    new_run: NewRun, witness: SealWitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witnesses, "BATCH", 4)
    several_seals(new_run, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        assert deliver(witness) == 0 and not due(witness), "it rests after a failure"
        failed = Delivery.objects.get()
        assert (failed.outcome, failed.last) == ("failed", 1) and "No space left on device" in failed.error
    several_seals(new_run, 9)
    wait_over()
    assert due(witness) and deliver(witness) == 10
    batches = Delivery.objects.filter(outcome="taken").order_by("id").values_list("first", "last")
    assert list(batches) == [(1, 4), (5, 8), (9, 10)]
    assert about(witness) == [], "a batch that came twice is no problem"


def test_pauses_after_failures_grow(new_run: NewRun, settings: Any, tmp_path: Path) -> None:
    witness = read_witness(f"file://{tmp_path}/missing/seals.jsonl")
    several_seals(new_run, 1)
    pauses = []
    for _ in range(9):
        wait_over()
        deliver(witness)
        pauses.append(run_sql("SELECT extract(epoch FROM due_at - clock_timestamp()) FROM seals_witness")[0][0])
    assert 2 < pauses[0] <= 5 < pauses[2] and 200 < pauses[-1] <= 300
    assert set(Delivery.objects.values_list("error", flat=True)) == {f"{witness.path}: No such file or directory"}


def test_a_line_that_a_crash_left_unfinished_is_no_problem(new_run: NewRun, witness: SealWitness) -> None:
    several_seals(new_run, 2)
    deliver(witness)
    whole = path_of(witness).read_bytes()
    several_seals(new_run, 1)
    (line,) = (each.to_json() for each in witnesses.read_lines([3]))
    path_of(witness).write_bytes(whole + line.encode()[:40])
    assert deliver(witness) == 1
    assert len(lines_of(witness)) == 4 and about(witness) == []


def test_two_processes_do_not_mix_their_lines(tmp_path: Path) -> None:
    path, text = tmp_path / "seals.jsonl", "x" * 100_000
    refused = []

    def write(letter: str) -> None:
        for _ in range(20):
            try:
                append_lines(path, iter([letter * 100_000]))
            except BlockingIOError:
                refused.append(letter)

    threads = [threading.Thread(target=write, args=[letter]) for letter in "xy"]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    found = path.read_text().splitlines()
    assert set(found) <= {text, "y" * 100_000} and len(found) == 40 - len(refused)


# --- a copy that was damaged, or that lies ----------------------------------------------------------------------------


def test_damaged_lines_are_named_by_their_number(new_run: NewRun, witness: SealWitness) -> None:
    several_seals(new_run, 3)
    deliver(witness)
    first, second, third = lines_of(witness)
    path_of(witness).write_bytes(b"\n".join([first, second[:-9], third, b"\xff{}", b""]))
    found = about(witness)
    assert f"witness {witness.path}, line 2: the line can't be read: it is not JSON" in found
    assert any(each.startswith(f"witness {witness.path}, line 4: the line can't be read") for each in found)
    assert f"witness {witness.path}: its copy lacks seal 2" in found and len(found) == 3


def test_a_lying_witness_accuses_nobody(new_run: NewRun, witness: SealWitness) -> None:
    run_id = several_seals(new_run, 3)
    deliver(witness)
    first, second, third = (json.loads(line) for line in lines_of(witness))
    second["leaves"][0][2] = "00" * 32  # as if the run had had another event
    own = Ed25519PrivateKey.generate()
    record = SealLine.from_json(json.dumps(third)).seal
    third |= {"public_key": public_bytes(own).hex(), "signature": own.sign(record.message).hex()}
    path_of(witness).write_text("\n".join(map(json.dumps, (first, second, third))))
    found = about(witness)
    assert len(found) == 3 and not any(str(run_id) in each for each in found), found
    assert found[0].endswith("line 2: seal 2 does not match its signature: this line of the copy is damaged or forged")
    assert "line 3: seal 3 was signed with" in found[1] and "is not a key of this installation" in found[1]
    assert found[2].endswith("its copy ends at seal 1, but it had stored seals up to 3: the copy was cut off")


def test_a_witness_that_lacks_what_it_took_is_named(new_run: NewRun, witness: SealWitness) -> None:
    several_seals(new_run, 4)
    deliver(witness)
    lines = lines_of(witness)
    path_of(witness).write_bytes(b"\n".join([lines[0], lines[3]]))
    assert about(witness) == [f"witness {witness.path}: its copy lacks seal 2 and 1 more"]


def test_two_seals_of_one_number_are_named(new_run: NewRun, witness: SealWitness) -> None:
    """Only with the private key can that be made."""
    several_seals(new_run, 2)
    deliver(witness)
    private = read_key(key_path())
    values = json.loads(lines_of(witness)[1])
    values["number"] = 1
    values["signature"] = private.sign(SealLine.from_json(json.dumps(values)).seal.message).hex()
    append_lines(path_of(witness), iter([json.dumps(values)]))
    assert any("line 3: there are two different seals 1, both signed" in each for each in about(witness))


@each_case("kind", ["missing", "folder", "endless"])
def test_a_copy_that_can_not_be_read_ends_the_command_with_2(kind: str, tmp_path: Path, new_run: NewRun) -> None:
    paths = {"missing": tmp_path / "none.jsonl", "folder": tmp_path, "endless": Path("/dev/zero")}
    path, errors = paths[kind], StringIO()
    with pytest.raises(SystemExit) as code:
        call_command("seals", "verify", "--witness", str(path), stdout=StringIO(), stderr=errors)
    assert code.value.code == 2 and f"seals: the witness {path} can't be read" in errors.getvalue()


# --- HTTPS ------------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A witness behind HTTP on this host. `answers` is what it says, then 204; None: nothing at all."""

    address: str = ""
    answers: list[int | None] = field(default_factory=list)
    got: list[tuple[dict[str, str], Any]] = field(default_factory=list)


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    from ipaddress import ip_network

    from durableagents.outgoing import http

    found, release = Server(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = found.answers.pop(0) if found.answers else 204
            if answer is None:
                release.wait(20)
                return
            found.got.append((dict(self.headers), json.loads(body)))
            self.send_response(answer)
            if answer == 302:
                self.send_header("Location", f"{found.address}elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.address = f"http://127.0.0.1:{server.server_port}/seals"
    update = {"webhook_addresses": ["127.0.0.0/8"]}
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update=update)
    assert settings.DURABLEAGENTS.webhook_networks == (ip_network("127.0.0.0/8"),)
    yield found
    release.set()
    server.shutdown()
    thread.join()
    server.server_close()
    http._silent.clear()


def test_an_https_witness_gets_each_seal_with_its_token(new_run: NewRun, server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    witness = read_witness(f"{server.address}#token={token}")
    several_seals(new_run, 3)
    assert deliver(witness) == 3
    assert [body["number"] for _, body in server.got] == [1, 2, 3]
    headers, body = server.got[1]
    seal_2 = Seal.objects.get(pk=2).record
    assert headers["Authorization"] == "Bearer s3cret" and seal_2.hash.hex() in headers["Idempotency-Key"]
    assert SealLine.from_json(json.dumps(body)).seal == seal_2
    assert "s3cret" not in str(list(Delivery.objects.values())) and witness.name == server.address


def test_what_was_not_taken_is_sent_again_in_order(new_run: NewRun, server: Server) -> None:
    witness = read_witness(server.address)
    several_seals(new_run, 4)
    server.answers = [200, 507]
    assert deliver(witness) == 1 and not due(witness)
    rows = Delivery.objects.order_by("id").values_list("outcome", "first", "last", "error")
    assert list(rows) == [("taken", 1, 1, ""), ("failed", 2, 2, "it answered 507")]
    wait_over()
    assert deliver(witness) == 3
    assert [body["number"] for _, body in server.got] == [1, 2, 2, 3, 4]


@each_case(
    "answer, why", [(302, "a redirect, and redirects are not followed"), (404, "answered 404"), (401, "answered 401")]
)
def test_any_other_answer_is_a_failure(new_run: NewRun, server: Server, answer: int, why: str) -> None:
    witness = read_witness(server.address)
    several_seals(new_run, 1)
    server.got.clear()
    server.answers = [answer]
    assert deliver(witness) == 0 and len(server.got) == 1
    assert why in Delivery.objects.get().error


def test_a_missing_token_file_is_a_failure_that_names_it(new_run: NewRun, server: Server, tmp_path: Path) -> None:
    witness = read_witness(f"{server.address}#token={tmp_path}/none")
    several_seals(new_run, 1)
    assert deliver(witness) == 0 and server.got == []
    assert f"its token file {tmp_path}/none can't be read: No such file" in Delivery.objects.get().error


@pytest.mark.django_db(transaction=True)
def test_a_slow_witness_holds_up_neither_sealing_nor_the_others(
    new_run: NewRun, server: Server, witness: SealWitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import connection

    from durableagents.outgoing import http

    monkeypatch.setattr(http, "WHOLE_SECONDS", 3.0)
    slow = read_witness(server.address)
    several_seals(new_run, 1)
    server.answers = [None] * 3

    def wait_for_it() -> None:
        deliver(slow)
        connection.close()

    thread = threading.Thread(target=wait_for_it)
    thread.start()
    while not Witness.objects.filter(name=slow.name).exists():
        pass
    assert deliver(slow) == 0, "another process leaves it alone meanwhile"
    several_seals(new_run, 1)
    assert deliver(witness) == 2 and thread.is_alive()
    thread.join(30)
    assert "no answer" in Delivery.objects.get(witness=slow.name).error


# --- a bucket with object lock ----------------------------------------------------------------------------------------


def test_a_bucket_with_object_lock_keeps_each_seal_and_overwrites_none(new_run: NewRun, settings: Any) -> None:
    witness = read_witness("storage:seals")
    with s3.serve(ObjectLockEnabledForBucket=True) as bucket:
        rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 30}}
        bucket.resource.meta.client.put_object_lock_configuration(
            Bucket=s3.NAME, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )
        options = bucket.options(location="production")
        backend = {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": options}
        settings.STORAGES = {**settings.STORAGES, "seals": backend}
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"seal_witnesses": [witness]})
        run_id = several_seals(new_run, 2)
        tamper("UPDATE seals_seal SET at = at - interval '16 minutes'")
        assert "no worker has tried" in status_of(witness).problem
        settings.STORAGES["seals"] = {**backend, "OPTIONS": {**options, "bucket_name": "none"}}
        fresh_storages(settings)
        assert deliver(witness) == 0 and "NoSuchBucket" in Delivery.objects.get().error
        assert status_of(witness).problem == "", "a new witness is not stale at once"
        tamper("UPDATE seals_witness SET since = since - interval '16 minutes'")
        assert "is stale: it has stored no seal" in status_of(witness).problem
        settings.STORAGES["seals"] = backend
        fresh_storages(settings)
        wait_over()
        tamper("UPDATE seals_seal SET at = at + interval '16 minutes'")
        several_seals(new_run, 1)
        assert deliver(witness) == 3 and status_of(witness).problem == ""
        assert bucket.keys() == [f"production/00000000000{n}.json" for n in (1, 2, 3)]
        assert list(check_witness(witness)) == []
        tamper("DELETE FROM seals_delivery")  # as after a lost answer
        wait_over()
        assert deliver(witness) == 3

        (version,) = bucket.bucket.object_versions.filter(Prefix="production/000000000003")
        with pytest.raises(ClientError, match="AccessDenied"):
            version.delete()
        bucket.bucket.Object("production/000000000003.json").put(Body=b"{}")
        assert any("object 3: " in each or "line 3: " in each for each in map(str, check_witness(witness)))
        tamper("DELETE FROM seals_delivery WHERE last = 3")
        wait_over()
        assert deliver(witness) == 2
        assert "a different object 000000000003.json, which is not overwritten" in Delivery.objects.latest("id").error
        bucket.bucket.Object("production/000000000003.json").delete()
        tamper("DELETE FROM seals_seal WHERE number = 2")
        code, text = run_command("verify", "--witness", "storage:seals")
        assert (
            code == 1 and "seal 2 is missing from the database (witness storage:seals" in text and str(run_id) in text
        )
        assert version.get()["Body"].read().startswith(b"{"), "the version below the marker"
    code, text = run_command("verify", "--witness", "storage:seals")
    assert code == 2 and "the witness storage:seals can't be read" in text
    assert run_command("verify", "--witness", "storage:none")[0] == 2


def fresh_storages(settings: Any) -> None:
    """Let Django make the storages again, of changed settings."""
    settings.STORAGES = dict(settings.STORAGES)


# --- status and commands ----------------------------------------------------------------------------------------------


def run_command(*command: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("seals", *command, stdout=out, stderr=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_status_names_a_stale_witness(new_run: NewRun, witness: SealWitness) -> None:
    several_seals(new_run, 1)
    deliver(witness)
    code, text = run_command("status")
    assert code == 0 and re.search(rf"witness {witness.name}: seal 1, at \d", text) and "key 1: " in text
    several_seals(new_run, 1)
    assert run_command("status")[0] == 0, "it may be late for some minutes"
    tamper("UPDATE seals_seal SET at = at - interval '16 minutes' WHERE number = 2")
    assert run_command("status")[0] == 0, "it has been a witness for less"
    tamper("UPDATE seals_witness SET since = since - interval '16 minutes'")
    code, text = run_command("status")
    problem = f"problem: witness {witness.name} is stale: it took seal 1 last, and seals have waited since"
    assert code == 1 and problem in text
    listed = every_seal_witness()
    assert listed is not None and listed.name == "seal witnesses" and "is stale" in listed.problems[0]


def test_status_names_seals_that_a_witness_has_and_the_database_lacks(new_run: NewRun, witness: SealWitness) -> None:
    several_seals(new_run, 3)
    deliver(witness)
    tamper("DELETE FROM seals_seal WHERE number = 3")
    code, text = run_command("status")
    assert code == 1 and f"witness {witness.name} stored seal 3, but the last seal in this database is 2" in text


def test_an_empty_copy_is_named(new_run: NewRun, witness: SealWitness, tmp_path: Path) -> None:
    several_seals(new_run, 1)
    (tmp_path / "empty").touch()
    assert any("has no seal of this installation" in str(each) for each in check_witness(tmp_path / "empty"))


def test_status_says_that_no_witness_is_set() -> None:
    code, text = run_command("status")
    assert code == 1 and "set DURABLEAGENTS_SEAL_WITNESSES" in text
    assert every_seal() is None and every_seal_witness() is None


def test_status_says_that_nothing_is_sealed(new_run: NewRun, witness: SealWitness) -> None:
    run_id = new_run()
    assert status.problems() == [], "the workers may just have started"
    tamper("UPDATE ledger_event SET at = at - interval '1 hour' WHERE run_id = %s", run_id)
    assert any("nothing was sealed yet" in each for each in status.problems())


def test_verification_of_all_records_includes_the_seals(new_run: NewRun, witness: SealWitness) -> None:
    run_id = several_seals(new_run, 2)
    deliver(witness)
    found = {each.name: each for each in verify_registers()}
    assert found["seals"].records == 2
    assert found["seals"].hash == Seal.objects.get(pk=2).record.hash.hex() and found["seals"].problems == []
    tamper("DELETE FROM ledger_event WHERE run_id = %s", run_id)
    tamper("DELETE FROM ledger_head WHERE run_id = %s", run_id)
    problems = next(each for each in verify_registers() if each.name == "seals").problems
    assert problems == [f"run {run_id}: event 4 was sealed in seal 1, but the run is missing (1 more of this run)"]


def test_each_witness_has_a_job_of_its_own(witness: SealWitness) -> None:
    names = [each.name for each in feature().periodic]
    assert names == ["seals: sealing", "seals: witness 1"] and feature().periodic[0].then == ("seals: witness 1",)


def test_rotate_and_export(new_run: NewRun, witness: SealWitness, tmp_path: Path) -> None:
    several_seals(new_run, 2)
    assert run_command("rotate", "--reason", "")[0] == 2
    code, text = run_command("rotate", "--reason", "an administrator left")
    assert code == 0 and f"Seal key 2 is in use: {key_path()}." in text
    several_seals(new_run, 1)
    copy = tmp_path / "copy.jsonl"
    copy.write_text(run_command("export")[1])
    assert [SealLine.from_json(line).seal.key for line in copy.read_text().splitlines()] == [1, 1, 2]
    assert run_command("export", "--after", "2")[1] == copy.read_text().splitlines(keepends=True)[2]
    assert list(check_witness(copy)) == []
    key_path().unlink()
    code, text = run_command("rotate", "--reason", "an administrator left")
    assert code == 2 and "is missing" in text


def test_a_replaced_record_of_keys_does_not_hide_what_the_witness_has(new_run: NewRun, witness: SealWitness) -> None:
    """Seals and keys made again by somebody without the private key."""
    run_id = several_seals(new_run, 2)
    deliver(witness)
    kept = key_path().read_text()
    tamper("DELETE FROM seals_seal")
    tamper("DELETE FROM seals_sealedhead")
    tamper("DELETE FROM seals_sealkey")
    key_path().unlink()
    seal()
    key_path().write_text(kept)
    rotated = [str(each) for each in check_witness(path_of(witness))]
    assert any(f"run {run_id}: event 4" in each for each in rotated), rotated
