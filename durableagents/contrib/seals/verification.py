"""Verifies the seals, and compares every sealed head with the journal and, if given, the seals with a witness's copy.

`ledger.verification.runs` checks the chain of events below a sealed head. `manage.py seals verify` runs both."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from durableagents.contrib.seals.keyring import SealKeyProblem, key_path, key_problems, read_key
from durableagents.contrib.seals.models import Delivery, Seal, SealedHead, SealKey
from durableagents.contrib.seals.records import NO_SEAL, Leaf, SealLine, SealRecord, public_bytes
from durableagents.contrib.seals.witnesses import status_of
from durableagents.object_storage import open_storage, read
from durableagents.seal_witness import SealWitness
from ledger.verification.archives import ArchiveDamaged, ArchivedRun, archived
from ledger.verification.registers import Listed

# Seals of a witness that are compared at a time. Each may have 10,000 heads.
_BATCH = 20
# A line that is longer than any seal is not read into memory.
_MAX_LINE = 16 * 1024 * 1024
# Selects sealed heads that the journal contradicts, by run. A run's head may be ahead of the sealed one, but never
# behind it.
_WRONG = """
    SELECT s.run_id, s.seq, s.seal, h.run_id IS NULL, h.seq, e.hash IS NULL, s.hash
    FROM {sealed} s
    LEFT JOIN ledger_head h ON h.run_id = s.run_id
    LEFT JOIN ledger_event e ON e.run_id = s.run_id AND e.seq = s.seq
    WHERE h.run_id IS NULL OR h.seq < s.seq OR e.hash IS DISTINCT FROM s.hash
    ORDER BY s.run_id, s.seq"""
_IN_TABLE = "seals_sealedhead"
_GIVEN = "(SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::bytea[], %s::bigint[]) AS u (run_id, seq, hash, seal))"
_WITHOUT_SEAL = """
    SELECT s.run_id, s.seq, s.seal FROM seals_sealedhead s
    WHERE NOT EXISTS (SELECT 1 FROM seals_seal x WHERE x.number = s.seal) ORDER BY s.run_id, s.seq"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. `run_id` and `seq` name the run and event concerned, if there is one."""

    text: str
    run_id: UUID | None = None
    seq: int | None = None

    def __str__(self) -> str:
        event = "" if self.seq is None else f"event {self.seq} "
        return f"run {self.run_id}: {event}{self.text}" if self.run_id else self.text


def every_seal() -> Listed | None:
    """Check all seals (record check of `ledger verify --all`)."""
    count, last = Seal.objects.count(), Seal.objects.order_by("-number").first()
    if last is None and not SealKey.objects.exists() and not SealedHead.objects.exists():
        return None
    return Listed("seals", count, last.record.hash.hex() if last else "", [str(each) for each in check_database()])


def every_seal_witness() -> Listed | None:
    """Check that no witness lags behind (record check of `ledger verify --all`); None if there are no witnesses."""
    states = [status_of(witness) for witness in settings.DURABLEAGENTS.seal_witnesses]
    if not states:
        return None
    taken = Delivery.objects.filter(outcome=Delivery.Outcome.TAKEN).count()
    return Listed("seal witnesses", taken, "", [each.problem for each in states if each.problem])


# --- the database alone -----------------------------------------------------------------------------------------------


def check_database() -> Iterator[Finding]:
    """Check keys, signatures, the chain of seals, Merkle roots, and sealed heads against the journal."""
    keys = list(SealKey.objects.order_by("number"))
    yield from (Finding(problem) for problem in key_problems(keys))
    yield from _check_seals({key.number: bytes(key.public_key) for key in keys})
    yield from _check_leaves_without_seal()
    yield from _check_heads(_WRONG.format(sealed=_IN_TABLE), [], "")


def _check_seals(keys: dict[int, bytes]) -> Iterator[Finding]:
    place, previous = 0, NO_SEAL
    for seal in Seal.objects.order_by("number").iterator():
        if seal.number != place + 1:
            yield Finding(f"seal {place + 1} is missing: the next one found is {seal.number}")
        elif bytes(seal.previous) != previous:
            yield Finding(f"seal {seal.number} does not follow the seal before it")
        record = seal.record
        place, previous = seal.number, record.hash
        if seal.key not in keys:
            yield Finding(f"seal {seal.number} names key {seal.key}, which is not recorded")
        elif not record.is_signed_by(keys[seal.key]):
            yield Finding(f"seal {seal.number} was not signed with key {seal.key}: it was changed or forged")
        if not record.has_leaves(leaves_of(seal.number)):
            yield Finding(f"seal {seal.number}: its Merkle root does not match its {record.count} sealed heads")


def sealed_runs() -> Iterator[UUID]:
    """Yield each run that was ever sealed."""
    yield from SealedHead.objects.order_by("run_id").values_list("run_id", flat=True).distinct().iterator()


def leaves_of(number: int) -> list[Leaf]:
    return [each.leaf for each in SealedHead.objects.filter(seal=number).order_by("run_id")]


def _check_leaves_without_seal() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(_WITHOUT_SEAL)
        rows = cursor.fetchall()
    for run_id, same in groupby(rows, key=itemgetter(0)):
        _, seq, seal = next(same)
        yield Finding(f"was sealed in seal {seal}, which is missing", run_id, seq)


def _check_heads(statement: str, parameters: Sequence[Any], where: str) -> Iterator[Finding]:
    """Report the first sealed event of each run that the journal contradicts."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows = cursor.fetchall()
    for run_id, of_run in groupby(rows, key=itemgetter(0)):
        found = list(of_run)
        if found[0][3] and (elsewhere := archived([run_id]).get(run_id)) is not None:
            yield from _check_archived(run_id, found, elsewhere, where)
            continue
        (_, seq, seal, is_gone, head_seq, is_event_gone, _), *others = found
        more = len(others)
        if is_gone:
            what = f"was sealed in seal {seal}{where}, but the run is missing"
        elif is_event_gone:
            what = f"was sealed in seal {seal}{where}, but is missing"
        elif head_seq < seq:
            what = f"was sealed in seal {seal}{where}, but the run's head is at event {head_seq}"
        else:
            what = f"was sealed in seal {seal}{where} with a different hash: it or an earlier event was changed"
        yield Finding(what + (f" ({more} more of this run)" if more else ""), run_id, seq)


def _check_archived(run_id: UUID, rows: Sequence[Any], found: ArchivedRun, where: str) -> Iterator[Finding]:
    """Compare an archived run's sealed events with its archive.

    If only the last event is sealed, the register is enough for that."""
    if all((seq, bytes(sealed)) == (found.seq, found.chain) for _, seq, *_, sealed in rows):
        return
    try:
        hashes = found.hashes()
    except ArchiveDamaged as error:
        yield Finding(str(error), run_id)
        return
    last = {found.seq: found.chain}
    for _, seq, seal, *_, sealed in rows:
        known = last if hashes is None else hashes
        if known.get(seq) != bytes(sealed) and (hashes is not None or seq >= found.seq):
            yield Finding(f"was sealed in seal {seal}{where}, but its archive has a different event there", run_id, seq)
            return


# --- a witness's copy -------------------------------------------------------------------------------------------------


class WitnessUnreadable(Exception):
    """A witness's file can't be read. The message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class _SealLine:
    n: int
    content: SealLine

    @property
    def record(self) -> SealRecord:
        return self.content.seal


def check_witness(path: Path | SealWitness) -> Iterator[Finding]:
    """Check a witness's copy (a file or a storage), and compare the database with it. Raises WitnessUnreadable."""
    copy = _Copy(path) if isinstance(path, Path) else _StoredCopy(path)
    lines = iter(copy.lines())
    while batch := list(islice(lines, _BATCH)):
        yield from copy.take_findings()
        yield from _compare(batch, copy.name)
    yield from copy.take_findings()
    yield from copy.end()


class _Copy:
    """Reads a witness's file.

    Only lines with an authentic signature are compared. Other lines are reported as problems of the copy, not of the
    database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.findings: list[Finding] = []
        self.seen: dict[int, bytes] = {}
        self.keys: set[bytes | None] = {bytes(key.public_key) for key in SealKey.objects.all()}
        self.keys.add(_own_key())
        self._torn: tuple[int, bytes, str] | None = None

    def take_findings(self) -> list[Finding]:
        found, self.findings = self.findings, []
        return found

    def lines(self) -> Iterator[_SealLine]:
        """Yield each authentic line once.

        After a crash, an unfinished line is not a problem if it is the beginning of the next line."""
        for n, text in enumerate(self._texts(), 1):
            if (line := self._read(n, text)) is not None:
                yield line
        self._torn_stays()

    def _texts(self) -> Iterator[bytes]:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # reading a pipe or a device may never end
                raise WitnessUnreadable(f"the witness {self.name} can't be read: it is not a regular file")
            with self.path.open("rb") as file:
                while text := file.readline(_MAX_LINE):
                    yield text.rstrip(b"\n")
        except OSError as error:
            raise WitnessUnreadable(f"the witness {self.name} can't be read: {error.strerror or error}") from None

    def _is_copy_of(self, witness: SealWitness) -> bool:
        return witness.path is not None and witness.path.resolve() == self.path.resolve()

    def _read(self, n: int, text: bytes) -> _SealLine | None:
        try:
            content = SealLine.from_json(text)
        except ValueError as error:
            self._torn_stays()
            self._torn = (n, text, str(error)) if text else None
            return None
        if self._torn is not None and text.startswith(self._torn[1]):
            self._torn = None
        self._torn_stays()
        record = content.seal
        if not record.is_signed_by(content.public_key) or not record.has_leaves(content.leaves):
            self._report(
                n, f"seal {record.number} does not match its signature: this line of the copy is damaged or forged"
            )
            return None
        if content.public_key not in self.keys:
            self._report(
                n,
                f"seal {record.number} was signed with {content.public_key.hex()[:16]}…, which is not a key of this "
                "installation: this copy is forged, or the record of keys was replaced",
            )
            return None
        known = self.seen.setdefault(record.number, record.hash)
        if known != record.hash:
            self._report(
                n, f"there are two different seals {record.number}, both signed: someone else has the private key"
            )
        return _SealLine(n, content)

    def end(self) -> Iterator[Finding]:
        """Check that the copy has all seals up to its last one, and all seals whose delivery is recorded."""
        last = max(self.seen, default=0)
        if not self.seen and Seal.objects.exists():
            yield Finding(f"witness {self.name}: its copy has no seal of this installation")
        have = Seal.objects.filter(number__lte=last).order_by("number").values_list("number", flat=True)
        if missing := [number for number in have if number not in self.seen]:
            yield Finding(
                f"witness {self.name}: its copy lacks seal {missing[0]}"
                + (f" and {len(missing) - 1} more" if missing[1:] else "")
            )
        names = [each.name for each in settings.DURABLEAGENTS.seal_witnesses if self._is_copy_of(each)]
        taken = Delivery.objects.filter(witness__in=names, outcome=Delivery.Outcome.TAKEN).order_by("-last").first()
        if taken is not None and taken.last > last:
            yield Finding(
                f"witness {self.name}: its copy ends at seal {last}, but it had stored seals up to {taken.last}: "
                "the copy was cut off"
            )

    def _torn_stays(self) -> None:
        if self._torn is not None:
            self._report(self._torn[0], f"the line can't be read: {self._torn[2]}")
            self._torn = None

    def _report(self, n: int, what: str) -> None:
        self.findings.append(Finding(f"witness {self.name}, line {n}: {what}"))


class _StoredCopy(_Copy):
    """Reads the objects of a witness that is a storage. They are numbered like the lines of a file."""

    def __init__(self, witness: SealWitness) -> None:
        super().__init__(Path())
        self.witness, self.name = witness, witness.name

    def _texts(self) -> Iterator[bytes]:
        try:
            storage = open_storage(self.witness.storage)
            for name in sorted(storage.listdir("")[1]):
                with suppress(FileNotFoundError):  # the object is reported as a missing seal
                    yield read(storage, name, _MAX_LINE)
        except Exception as error:  # each storage backend raises its own exceptions
            why = f"{type(error).__name__}: {error}"
            raise WitnessUnreadable(f"the witness {self.name} can't be read: {why}") from None

    def _is_copy_of(self, witness: SealWitness) -> bool:
        return witness == self.witness


def _own_key() -> bytes | None:
    try:
        return public_bytes(read_key(key_path()))
    except SealKeyProblem:
        return None  # `check_database` and `status` report this


def _compare(batch: Sequence[_SealLine], path: str) -> Iterator[Finding]:
    """Compare authentic lines with the database's seals, and their heads with the journal."""
    here = {seal.number: seal.record.hash for seal in Seal.objects.filter(number__in=[x.record.number for x in batch])}
    for line in batch:
        number = line.record.number
        found = here.get(number)
        fate = f"is missing from the database (witness {path}, line {line.n})"
        if found is not None:
            fate = f"differs in the database (witness {path}, line {line.n})"
        if found != line.record.hash:
            yield Finding(f"seal {number} {fate}")
        kept = set(leaves_of(number))
        for leaf in line.content.leaves:
            if leaf not in kept:
                yield Finding(f"is not in the database's seal {number}, but is in that of the witness", *leaf[:2])
    leaves = [(*leaf, line.record.number) for line in batch for leaf in line.content.leaves]
    if leaves:
        columns = [list(column) for column in zip(*leaves, strict=True)]
        yield from _check_heads(_WRONG.format(sealed=_GIVEN), columns, f" (witness {path})")
