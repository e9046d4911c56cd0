"""Delivers seals to witnesses: files on other volumes, storages such as S3, and HTTPS endpoints.

Each witness has its own job and log, so that a slow one delays neither the others nor the sealing."""

# Seals are delivered at least once and in order. If a process dies after a witness accepted a batch but before that was
# recorded, the batch is sent again. Endpoints should ignore a repeated line, and verification accepts repeated lines.

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Max

from durableagents.contrib.seals.models import Delivery, Seal, SealedHead, SealKey, Witness
from durableagents.contrib.seals.records import SealLine
from durableagents.env import SealWitness
from durableagents.object_storage import create, open_storage, read
from durableagents.outgoing.http import post
from ledger.clock import database_now
from runs.backoff import pause_seconds

log = logging.getLogger("durableagents.contrib.seals")
BATCH = 100
# If the process that delivers to a witness dies, another one tries after the lease. The lease is longer than a batch
# and one more attempt of `post` can take.
BATCH_SECONDS, LEASE_SECONDS = 30.0, 60.0
_FIRST_PAUSE, _MAX_PAUSE = 5.0, 300.0


class NotTaken(Exception):
    """A witness did not accept a seal. The message has the reason."""


def is_due(witness: SealWitness) -> str:
    """Return the SQL condition that is true if this witness lacks seals and is not paused after a failure."""
    name = "'" + witness.name.replace("'", "''") + "'"
    return (
        f"coalesce((SELECT max(number) FROM seals_seal), 0) > coalesce((SELECT max(last) FROM seals_delivery "
        f"WHERE witness = {name} AND outcome = 'taken'), 0) "
        f"AND NOT EXISTS (SELECT 1 FROM seals_witness WHERE name = {name} AND due_at > statement_timestamp() "
        f"AND due_at < statement_timestamp() + interval '{_MAX_PAUSE} s')"
    )


def taken_up_to(name: str) -> int:
    """Return the number of the last seal that this witness accepted; 0 if none."""
    taken = Delivery.objects.filter(witness=name, outcome=Delivery.Outcome.TAKEN)
    last: int = taken.aggregate(last=Max("last"))["last"] or 0
    return last


def deliver(witness: SealWitness) -> int:
    """Deliver all seals that a witness lacks, in batches; return their number.

    The delivery stops at the first failure, which is recorded and tried again later."""
    count = 0
    while (state := _take(witness)) is not None:
        first = taken_up_to(witness.name) + 1
        numbers = list(
            Seal.objects.filter(number__gte=first).order_by("number").values_list("number", flat=True)[:BATCH]
        )
        if not numbers:
            _rest(state, 0.0, failures=0)
            break
        last, why = _hand_over(witness, numbers)
        count += 0 if last is None else last - numbers[0] + 1
        _record(witness, state, numbers, last, why)
        if why:
            break
    return count


def _hand_over(witness: SealWitness, numbers: Sequence[int]) -> tuple[int | None, str]:
    """Deliver these seals; return the last one that was accepted, and why the next one was not."""
    if witness.path is not None:
        try:
            append_lines(witness.path, (line.to_json() for line in read_lines(numbers)))
        except OSError as error:
            return None, f"{witness.path}: {error.strerror or error}"
        return numbers[-1], ""
    hand_over = _store if witness.storage else _post
    last, ends = None, time.monotonic() + BATCH_SECONDS
    for line in read_lines(numbers):
        if time.monotonic() > ends:
            break
        try:
            hand_over(witness, line)
        except NotTaken as error:
            return last, str(error)
        last = line.seal.number
    return last, ""


def _post(witness: SealWitness, line: SealLine) -> None:
    """Post one seal, within a time limit and without following redirects. Raises NotTaken."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"seal-{line.seal.hash.hex()}"}
    if witness.token_file is not None:
        try:
            headers["Authorization"] = f"Bearer {witness.token_file.read_text(encoding='ascii').strip()}"
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not plain text"
            raise NotTaken(f"its token file {witness.token_file} can't be read: {reason}") from None
    outcome = post(witness.name, line.to_json().encode(), headers)
    if outcome.state != "sent":
        raise NotTaken(outcome.why)


def object_name(number: int) -> str:
    """Return the name of a seal's object in a storage. Names sort in the order of seals."""
    return f"{number:012d}.json"


def _store(witness: SealWitness, line: SealLine) -> None:
    """Create the object of one seal, without overwriting another. Raises NotTaken."""
    name, content = object_name(line.seal.number), line.to_json().encode()
    try:
        storage = open_storage(witness.storage)
        try:
            create(storage, name, content)
        except FileExistsError:
            if read(storage, name) != content:
                raise NotTaken(f"it contains a different object {name}, which is not overwritten") from None
    except NotTaken:
        raise
    except Exception as error:  # each storage backend raises its own exceptions
        raise NotTaken(f"{type(error).__name__}: {error}") from None


def append_lines(path: Path, lines: Iterator[str]) -> None:
    """Append lines to a witness's file and flush them to disk. Raises OSError.

    If a crash left a line unfinished, a line break is added first, because nothing in the file is ever rewritten."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(file.fileno()).st_size
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            file.write(b"\n")
        for line in lines:
            file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(numbers: Sequence[int]) -> Iterator[SealLine]:
    """Read these seals with their leaves and keys, in order."""
    keys = {key.number: bytes(key.public_key) for key in SealKey.objects.all()}
    for seal in Seal.objects.filter(number__in=numbers).order_by("number").iterator():
        leaves = tuple(each.leaf for each in SealedHead.objects.filter(seal=seal.number).order_by("run_id"))
        yield SealLine(seal.record, keys[seal.key], leaves)


# --- turns and the log ------------------------------------------------------------------------------------------------


@transaction.atomic
def _take(witness: SealWitness) -> Witness | None:
    """Reserve a witness for this process; None if it isn't due or another process has it."""
    now = database_now()
    Witness.objects.get_or_create(name=witness.name, defaults={"due_at": now})
    state = Witness.objects.select_for_update(skip_locked=True).filter(name=witness.name).first()
    # A time further ahead than the longest pause was written while the clock was ahead.
    if state is None or now < state.due_at < now + timedelta(seconds=_MAX_PAUSE):
        return None
    state.due_at = now + timedelta(seconds=LEASE_SECONDS)
    state.save(update_fields=["due_at"])
    return state


@transaction.atomic
def _record(witness: SealWitness, state: Witness, numbers: Sequence[int], last: int | None, why: str) -> None:
    now = database_now()
    if last is not None:
        Delivery.objects.create(
            witness=witness.name, first=numbers[0], last=last, at=now, outcome=Delivery.Outcome.TAKEN
        )
    if not why:
        _rest(state, 0.0, failures=0)
        return
    failed = numbers[0] if last is None else last + 1
    Delivery.objects.create(
        witness=witness.name, first=failed, last=failed, at=now, outcome=Delivery.Outcome.FAILED, error=why[:500]
    )
    failures = 1 if last is not None else state.failures + 1
    log.warning("witness %s did not take seal %s: %s", witness.name, failed, why)
    _rest(state, pause_seconds(failures, first=_FIRST_PAUSE, longest=_MAX_PAUSE, spread=0.2), failures=failures)


def _rest(state: Witness, seconds: float, *, failures: int) -> None:
    state.due_at, state.failures = database_now() + timedelta(seconds=seconds), failures
    state.save(update_fields=["due_at", "failures"])


# --- problems ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WitnessStatus:
    """The state of a witness.

    `waiting_since` is the time of the oldest seal that it lacks, or the time when it was configured, if that is later.
    `is_known` tells whether a worker has tried to deliver to it."""

    name: str
    taken: int
    taken_at: datetime | None
    waiting_since: datetime | None
    error: str
    newest: int  # number of the newest seal in the database
    is_known: bool = True

    @property
    def is_stale(self) -> bool:
        return self.waiting_since is not None and _is_old(self.waiting_since)

    @property
    def problem(self) -> str:
        """Return the problem with this witness; empty if there is none."""
        if self.taken > self.newest:
            return (
                f"witness {self.name} stored seal {self.taken}, but the last seal in this database is {self.newest}: "
                "seals were deleted, or a backup was restored"
            )
        if not self.is_known and self.newest:
            return (
                f"no worker has tried witness {self.name}: restart the workers, so that they read "
                "DURABLEAGENTS_SEAL_WITNESSES"
            )
        if not self.is_stale:
            return ""
        last = f"took seal {self.taken} last" if self.taken else "has stored no seal"
        since = f"{self.waiting_since:%Y-%m-%d %H:%M} UTC" + (f" ({self.error})" if self.error else "")
        return f"witness {self.name} is stale: it {last}, and seals have waited since {since}"


def status_of(witness: SealWitness) -> WitnessStatus:
    taken = taken_up_to(witness.name)
    newest = Seal.objects.aggregate(last=Max("number"))["last"] or 0
    waiting = Seal.objects.filter(number__gt=taken).order_by("number").values_list("at", flat=True).first()
    since = Witness.objects.filter(name=witness.name).values_list("since", flat=True).first()
    if waiting is not None and since is not None:
        waiting = max(waiting, since)
    tried = Delivery.objects.filter(witness=witness.name).order_by("-id").first()
    took = Delivery.objects.filter(witness=witness.name, outcome=Delivery.Outcome.TAKEN).order_by("-last").first()
    error = tried.error if tried is not None and tried.outcome == Delivery.Outcome.FAILED else ""
    at = took.at if took else None
    return WitnessStatus(witness.name, taken, at, waiting, error, newest, is_known=since is not None)


def _is_old(at: datetime) -> bool:
    return database_now() - at > timedelta(minutes=settings.DURABLEAGENTS.seal_stale_minutes)
