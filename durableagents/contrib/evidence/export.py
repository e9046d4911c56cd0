"""Export a bundle of runs.

Events that aren't sealed yet are sealed, the runs are read from one snapshot, and the manifest is signed. The export is
recorded before any of it is delivered.
"""

from __future__ import annotations

import errno
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.db import connection, transaction

from durableagents.contrib.evidence import record, verify
from durableagents.contrib.evidence.archive import Archive
from durableagents.contrib.evidence.contents import RunContents, as_json, as_lines
from durableagents.contrib.evidence.errors import CannotSign, CannotWrite
from durableagents.contrib.evidence.leaving_out import Choice, LeavingOut, check_matched
from durableagents.contrib.evidence.proofs import Proofs, key_rows
from durableagents.contrib.seals.keyring import SealKeyProblem, sign
from durableagents.contrib.seals.models import SealedHead
from durableagents.contrib.seals.sealing import SealsDamaged, seal_all
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import Busy, InvalidInput, NotFound
from ledger.models import Head
from ledger.verification.archives import archived
from ledger.verification.runs import snapshot
from runs.models import Run

MAX_RUNS = 1000
# Limit of concurrent exports in a process, because each reads and hashes whole journals.
_PLACES = threading.BoundedSemaphore(2)
_WAITS_SECONDS = 5.0
_SEAL_TRIES = 10
_README = """\
Evidence bundle of Durable Agents
=================================

Verify it with Python 3.9 or newer, without network or installation. Extract verify.py, then run it:

    python3 -c "import zipfile; zipfile.ZipFile('THIS-BUNDLE.zip').extract('verify.py')"
    python3 -I verify.py THIS-BUNDLE.zip

Add `--key KEY` with the operator's public key, and `--witness FILE` with a witness's copy of the seals, if you have
them from elsewhere. Anyone who can replace this bundle can replace the verify.py in it: take verify.py from the
project's source code if you don't trust where the bundle comes from.

record.html                what happened, for people
runs/RUN/events.jsonl      the journal: `clear` and `stored` are the bytes that the hash chain covers
runs/RUN/ledger.jsonl      facts about side effects
runs/RUN/decisions.jsonl   people's votes and decisions
runs/RUN/overrides.jsonl   other acts of people on the run
runs/RUN/checkpoints.jsonl digests of saved states
runs/RUN/run.json          the run, and the manifest of its agent
runs/RUN/seals.json        seals, each with the proof that it covers the run
runs/RUN/key.json          the key that decrypts `stored`, if nothing was left out on request
runs/RUN/left_out.json     the key of the digests of what redacted bundles of this run leave out
keys.json                  public keys of the seals
manifest.json              SHA-256 of each file, in order; signed in signature.json

Keep it as confidential as the run: key.json opens the run's content also in a copy of the database.
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """A finished bundle."""

    sha256: str
    size: int
    runs: int
    left_out: int  # number of values left out on request


def export(run_ids: Sequence[UUID], file: BinaryIO, *, by: Actor, choice: Choice, reason: str = "") -> Exported:
    """Write the bundle of these runs to an empty, seekable file.

    Raises NotFound, InvalidInput, CannotSign, CannotWrite, Busy, ContentUnavailable.
    """
    if not run_ids:
        raise InvalidInput("No run was named.", errors=[])
    if len(run_ids) > MAX_RUNS:
        raise InvalidInput(f"A bundle has at most {MAX_RUNS} runs; {len(run_ids)} were requested.", errors=[])
    if not _PLACES.acquire(timeout=_WAITS_SECONDS):
        raise Busy("Other bundles are being written")
    try:
        _seal(run_ids)
        with Archive(file) as archive:
            making = Making(list(dict.fromkeys(run_ids)), archive, by, choice, reason)
            with _reading(making.run_ids):
                making.write_runs()
            making.finish()
        exported = _measured(file, making)
        _record(making, exported, by)
        return exported
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise CannotWrite("There is not enough space on the disk. Nothing was exported.") from None
    except (SealKeyProblem, SealsDamaged) as error:
        raise CannotSign(f"{error}"[:1].upper() + f"{error}"[1:] + ". Nothing was exported.") from None
    finally:
        _PLACES.release()


@contextmanager
def _reading(run_ids: Sequence[UUID]) -> Iterator[None]:
    """Read everything inside the `with` block from one snapshot.

    The rows of archived runs are restored in its transaction, which is rolled back. Raises DurableAgentsError if an
    archive can't be read.
    """
    elsewhere = archived(run_ids)
    if not elsewhere:
        with snapshot():
            yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; "
                "SET LOCAL idle_in_transaction_session_timeout = '2min'"
            )
        for found in elsewhere.values():
            found.lay_out()
        yield
        transaction.set_rollback(True)


def _seal(run_ids: Sequence[UUID]) -> None:
    """Seal the events of these runs.

    If another process is sealing, wait briefly for it. Events that it leaves out are reported as not sealed.
    """
    heads = dict(Head.objects.filter(run_id__in=run_ids).values_list("run_id", "seq"))
    for _ in range(_SEAL_TRIES):
        if seal_all():
            return
        sealed = dict.fromkeys(heads, 0)
        for run_id, seq in SealedHead.objects.filter(run_id__in=run_ids).values_list("run_id", "seq"):
            sealed[run_id] = max(sealed.get(run_id, 0), seq)
        if all(sealed[run_id] >= seq for run_id, seq in heads.items()):
            return
        time.sleep(0.2)


class Making:
    """A bundle in the making."""

    def __init__(self, run_ids: Sequence[UUID], archive: Archive, by: Actor, choice: Choice, reason: str) -> None:
        self.run_ids, self.choice, self.by, self.reason = run_ids, choice, by, reason
        self.archive, self.proofs = archive, Proofs()
        self.runs: list[dict[str, Any]] = []
        self.records: list[record.RunRecord] = []
        self.left_out, self.unmatched = 0, list(choice.paths)
        self.made_at = database_now().isoformat(timespec="microseconds")

    def write_runs(self) -> None:
        """Write the files of all runs.

        Raises NotFound for an unknown run, InvalidInput for a field to leave out that no run has.
        """
        self.archive.add("README.txt", [_README.encode()])
        self.archive.add("verify.py", [Path(verify.__file__).read_bytes()])
        for run_id in self.run_ids:
            self._write_run(run_id)
        check_matched(self.unmatched)
        self.keys = key_rows()

    def _write_run(self, run_id: UUID) -> None:
        run, head = Run.objects.filter(pk=run_id).first(), Head.objects.filter(run_id=run_id).first()
        if run is None or head is None:
            raise NotFound("run", run_id)
        contents = RunContents(run, head, LeavingOut(run_id, self.choice))
        contents.learn()
        folder, about, acts = f"runs/{run_id}/", contents.about(), list(contents.overrides())
        self.archive.add(folder + "run.json", as_json(about))
        self.archive.add(folder + "events.jsonl", as_lines(contents.events()))
        self.archive.add(folder + "ledger.jsonl", as_lines(contents.ledger()))
        self.archive.add(folder + "decisions.jsonl", as_lines(contents.decisions()))
        self.archive.add(folder + "overrides.jsonl", as_lines(acts))
        self.archive.add(folder + "checkpoints.jsonl", as_lines(contents.checkpoints()))
        proofs = self.proofs.of(run_id, head.seq, contents.decided())
        self.archive.add(folder + "seals.json", as_json({"proofs": proofs}))
        if (key := contents.disclosed_key) is not None:
            self.archive.add(folder + "key.json", as_json({"cipher": "AES-256-GCM", "key": key.hex()}))
        if not self.choice.is_any:
            self.archive.add(folder + "left_out.json", as_json({"key": contents.leaving_out.key.hex()}))
        self.left_out += contents.leaving_out.count
        self.unmatched = [path for path in self.unmatched if path in contents.leaving_out.unmatched]
        self.runs.append({"id": str(run_id), "events": head.seq, "head": bytes(head.chain).hex()})
        if len(self.records) < record.MAX_RUNS:
            self.records.append(record.run_record(contents, about, proofs, acts))

    def finish(self) -> None:
        """Write the readable record and the signed manifest. Raises SealKeyProblem."""
        manifest = {
            "format": verify.FORMAT,
            "made_at": self.made_at,
            "by": self.by.ref,
            "role": self.by.role,
            "reason": self.reason,
            "left_out": self.choice.words,
            "runs": self.runs,
        }
        fields = manifest | {"made": verify.minute(self.made_at), "who": record.visible(self.by.ref, 80)}
        public = self.keys[-1]["public_key"] if self.keys else ""
        page = record.render(self.records, fields, public, len(self.runs) - len(self.records))
        self.archive.add("keys.json", as_json(self.keys))
        self.archive.add("record.html", [page])
        content = json.dumps(manifest | {"files": list(self.archive.entries)}, indent=1).encode()
        key, signature = sign(verify.FORMAT.encode() + hashlib.sha256(content).digest())
        signed = {"key": key.number, "public_key": bytes(key.public_key).hex(), "signature": signature.hex()}
        self.archive.add(verify.MANIFEST, [content])
        self.archive.add(verify.SIGNATURE, as_json(signed))


def _measured(file: BinaryIO, making: Making) -> Exported:
    file.flush()
    digest, size = hashlib.sha256(), file.seek(0, 2)
    file.seek(0)
    while part := file.read(1024 * 1024):
        digest.update(part)
    file.seek(0)
    return Exported(digest.hexdigest(), size, len(making.runs), making.left_out)


@transaction.atomic
def _record(making: Making, exported: Exported, by: Actor) -> None:
    """Record the export in each run."""
    about = {"sha256": exported.sha256, "bytes": exported.size, "runs": exported.runs, "left_out": making.choice.words}
    for run in making.runs:
        acted(
            "evidence",
            by=by,
            subject=f"run {run['id']}",
            justification=making.reason,
            after=about | {"events": run["events"], "head": run["head"]},
        )
