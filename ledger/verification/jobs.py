"""Verifications of every run, requested in the console.

Each is carried out by a separate process, so that no page or step waits for it; if the process dies, another one
continues where it stopped.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.models import VerificationJob
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify_all

log = logging.getLogger("ledger.verification.jobs")
STORE_SECONDS = 2.0
# Interval at which a process reports that it is alive, and time without a report after which another one takes over.
BEAT_SECONDS = 5.0
SILENCE = timedelta(seconds=30)
# Number of problems that are stored; all are counted.
MAX_KEPT = 200
# A verification of changes looks back this much further: transactions may have been open when the last one began, and
# clocks may have been set back.
OVERLAP = timedelta(hours=1)
IS_DUE = (
    "EXISTS (SELECT FROM ledger_verificationjob WHERE is_open AND "
    f"(alive_at IS NULL OR alive_at < statement_timestamp() - interval '{SILENCE.total_seconds():.0f} s'))"
)


class AlreadyVerifying(DurableAgentsError):
    status, code, title = 409, "already-verifying", "A verification is in progress"

    def __init__(self) -> None:
        super().__init__("Wait until the current verification has finished, then try again.")


class NothingVerified(DurableAgentsError):
    status, code, title = 409, "nothing-verified", "No earlier verification"

    def __init__(self) -> None:
        super().__init__(
            "No verification has finished yet, so it is not known what has changed since. Verify all runs first."
        )


def ask(by: Actor, *, only_changed: bool) -> VerificationJob:
    """Request a verification of every run, or only of those that changed since the last one began.

    Raises AlreadyVerifying, NothingVerified.
    """
    since: datetime | None = None
    if only_changed:
        last = VerificationJob.objects.filter(finished_at__isnull=False).order_by("-id").first()
        if last is None:
            raise NothingVerified
        since = last.asked_at - OVERLAP
    try:
        with transaction.atomic():
            return VerificationJob.objects.create(asked_by=by.ref, since=since)
    except IntegrityError:
        raise AlreadyVerifying from None


def carry_out(processes: int) -> VerificationJob | None:
    """Carry out the open job to its end and return it.

    Return None if there is none, or if another process works on it or has taken it over.
    """
    me = uuid4()
    is_free = Q(alive_at=None) | Q(alive_at__lt=Now() - SILENCE)
    if not VerificationJob.objects.filter(is_free, is_open=True).update(runner=me, alive_at=Now()):
        return None
    job = VerificationJob.objects.get(runner=me)
    is_over = threading.Event()
    beating = threading.Thread(target=_beat, args=[me, is_over], daemon=True)
    beating.start()
    try:
        if not _through(job, processes):
            return None
    finally:
        is_over.set()
        beating.join()
    job.refresh_from_db()
    return job


def _through(job: VerificationJob, processes: int) -> bool:
    if not job.lists:
        for each in verify_registers():
            job.lists.append([each.name, each.records, each.hash])
            _note(job, each.name, each.problems)
    stored = time.monotonic()
    for found in verify_all(job.after, since=job.since, processes=processes):
        job.after, job.runs, job.events = found.run_id, job.runs + 1, job.events + found.events
        _note(job, str(found.run_id), found.problems)
        if time.monotonic() - stored > STORE_SECONDS:
            stored = time.monotonic()
            if not _stored(job):
                return False
    return _stored(job, is_open=False, finished_at=Now())


def _note(job: VerificationJob, where: str, problems: list[str]) -> None:
    job.problems += len(problems)
    room = MAX_KEPT - len(job.findings)
    job.findings += [[where, problem] for problem in problems[:room]]


def _stored(job: VerificationJob, **more: Any) -> bool:
    """Store the progress; return False if another process has taken the job over."""
    values = {name: getattr(job, name) for name in ("after", "runs", "events", "problems", "findings", "lists")}
    if VerificationJob.objects.filter(pk=job.pk, runner=job.runner).update(**values, **more):
        return True
    log.warning("verification %s was taken over by another process", job.pk)
    return False


def _beat(me: UUID, is_over: threading.Event) -> None:
    """Report that the process is alive, even while it reads a long list."""
    try:
        while not is_over.wait(BEAT_SECONDS):
            VerificationJob.objects.filter(runner=me).update(alive_at=Now())
    except DatabaseError:
        log.warning("a verification can't record its progress", exc_info=True)
    finally:
        connection.close()


def start_process() -> None:
    """Carry out the open job in a separate process at low priority, and wait for it."""
    done = subprocess.run(
        [sys.executable, "-m", "django", "ledger", "verify", "--job"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    if done.returncode not in (
        0,
        1,
        2,
    ):  # exit code 1: it found problems, which the page shows; 2: another process was faster
        log.error(
            "a verification ended with code %s: %s", done.returncode, done.stderr.decode(errors="replace")[-2000:]
        )
