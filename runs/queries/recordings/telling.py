"""A run's whole journal as a test of its agent, which has been told once before anybody gets it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from ledger import events as e
from ledger.errors import NotFound
from runs.engine.agents import registry
from runs.engine.errors import JournalBroken, UnknownAgent, UnknownVersion
from runs.engine.recordings.recording import FULL, BadRecording, Recording
from runs.engine.recordings.redaction import Redaction, without_keys
from runs.engine.recordings.scripts import Told, as_one_version, proven
from runs.journal.reader import EVENTS, Cut
from runs.models import Run
from runs.queries.recordings.kin import declared_secrets
from runs.queries.recordings.reading import MOST_EVENTS, believed


def told_as_test(run_id: UUID, *, paths: Sequence[str], salt: bytes, payloads: str) -> str:
    """The test's text. Raises NotFound, and BadRecording for a run that no test can be made of, with why."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    try:
        agent = registry.find(run.graph_id)
    except (UnknownAgent, UnknownVersion):
        raise BadRecording(f"{run.graph_id} is not installed here") from None
    with connection.cursor() as cursor:
        cursor.execute(f"{EVENTS} LIMIT %s", [run_id, 1, MOST_EVENTS + 1])
        rows = cursor.fetchall()
    if len(rows) > MOST_EVENTS:
        raise BadRecording(f"it has more than {MOST_EVENTS} events")
    try:
        created, tail = believed(run, rows, Cut())
    except JournalBroken as error:
        raise BadRecording(f"its record is damaged: {error}") from None
    events, times = as_one_version(tail, [row[2] for row in rows])
    whole = Recording(
        run_id=str(run_id),
        graph_id=run.graph_id,
        fingerprint="",
        created=created,  # type: ignore[arg-type]
        node="",
        visit=0,
        generation=0,
        state=None,
        events=tuple(events[1:]),
    )
    whole = without_keys(whole)
    if payloads != FULL:
        own = Redaction(paths, salt, declared_secrets(whole))
        kept = [i for i, event in enumerate(whole.events) if own.keeps(event)]
        times = [times[0], *(times[i + 1] for i in kept)]
        whole = own.of(whole)
    told = Told(str(run_id), agent, whole.created, whole.events, times, str(run.state))
    try:
        return proven(told)
    except BadRecording as error:
        moved = next((x for x in tail if isinstance(x, e.RunMigrated)), None)
        if moved is None:
            raise
        raise BadRecording(f"it was moved from {moved.of} to {moved.to}, and {error}") from None
