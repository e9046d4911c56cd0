"""Effects of a retry: waits to reopen, and late results to show first.
All functions run under the locks of `lifecycle.retry`. A late result that contradicts what the node continued from
stops the run for an operator before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from ledger import events as e
from ledger.codec import unpack
from ledger.events import decode
from ledger.models import Event
from runs import features
from runs.engine import unknown
from runs.engine.journal import Entry, Intent, WaitSpec
from runs.engine.steps.late_news import late_news
from runs.engine.tape import Tape, payload_of
from runs.models import Run, Wait
from runs.services.calls import tool_here
from runs.services.command import open_wait
from runs.services.halted_time import stood_still

KEY_LIVES = "Another run with its key {} is active."
_LATE = ("CallbackArrivedLate", "ToolAnsweredLate")
_ENDS = ("RunCompleted", "RunFailed", "RunCancelled")


def key_lives(runs: Iterable[Run]) -> frozenset[UUID]:
    """Return which of these runs have a business key that another active run uses."""
    keyed = {run.pk: (run.agent, run.business_key) for run in runs if run.business_key}
    same = Run.objects.filter(business_key__in={key for _, key in keyed.values()}, ended_at=None, is_queued=False)
    alive = set(same.values_list("agent", "business_key")) if keyed else set()
    return frozenset(pk for pk, key in keyed.items() if key in alive)


def unheard_of(run: Run) -> list[dict[str, Any]]:
    """Return the late results for the run since its last retry.
    Raises ValueError, KeyError for unreadable events."""
    journal = Event.objects.filter(run_id=run.id)
    retries = journal.filter(Q(kind="RunRetried") | Q(kind="WaitResolved", slot__startswith="operator/"))
    since = retries.order_by("-seq").values_list("seq", flat=True).first() or 0
    came = set(journal.filter(kind__in=_LATE, seq__gt=since).values_list("slot", "attempt", "kind"))
    if not came:
        return []
    rows = journal.filter(slot__in={slot for slot, _, _ in came}).order_by("seq").values_list("clear", "sealed")
    all_news = late_news(decode(clear, unpack(sealed)) for clear, sealed in rows)
    return [news for news in all_news if (news["slot"], news["attempt"], news["came"]) in came]


def settle_by_witnesses(run: Run, tape: Tape) -> tuple[list[e.Event], list[Entry]]:
    """Settle calls of unknown outcome if late results report that they happened.
    Returns events and ledger entries."""
    settled: list[e.Event] = []
    entries: list[Entry] = []
    for name in tape.told_by_witnesses():
        slot = tape.slot(name)
        testimony, intent = slot.now.testimony, slot.now.intent
        assert testimony is not None and isinstance(intent, e.ToolInvoked)
        result = payload_of(testimony)["result"]
        event, entry = unknown.late_result(
            Intent.of(intent),
            result,
            by=testimony.by,
            n=slot.now.waits_of("reconcile"),
            when="the run had ended",
            external_id=_external_id(run, testimony.tool, result),
        )
        tape.add(event)
        settled.append(event)
        entries.append(entry)
    return settled, entries


def _external_id(run: Run, name: str, result: Any) -> str | None:
    tool = tool_here(run, name)
    return None if tool is None else tool.external_id_of(result)


def over(run: Run, *, now: datetime) -> tuple[datetime, datetime]:
    """Return the interval between the run's end, according to its journal, and its retry now."""
    ends = Event.objects.filter(run_id=run.id, kind__in=_ENDS).order_by("-seq")
    ended = ends.values_list("at", flat=True).first() or now
    return min(ended, now), now


def reopen(run: Run, tape: Tape, *, over: tuple[datetime, datetime]) -> list[Wait]:
    """Reopen the waits that the run's end withdrew and that are still open according to the journal.
    A reopened wait has as much time left as when the run ended, except that timers keep their time. Returns the
    approvals among the waits; their deadlines depend on the record of the retry, so they are set after it is written.
    `over` is the interval in which the run had ended."""
    questions, rest = [], over[1] - over[0] - stood_still(run.id, *over)  # a halt defers deadlines itself
    for wait in run.waits.select_for_update().filter(resolution="withdrawn", consumed_at__isnull=True):
        slot = tape.slot(wait.slot)
        attempt = slot.at(wait.attempt)
        is_asked = wait.kind == "approval" and slot.gate is not None and slot.gate.n == wait.n and slot.decision is None
        is_open = attempt.waits.get((wait.kind, wait.n), "none") is None
        is_known = (attempt.result is not None or attempt.is_settled) and not attempt.is_contradicted
        if not is_known and (is_asked or is_open):
            wait.resolution = wait.resolved_by = wait.resolved_at = None
            if is_asked:
                questions.append(wait)
            elif (
                wait.kind != Wait.Kind.TIMER
            ):  # The time of a timer was chosen deliberately. Other waits are extended by the lost time.
                wait.deadline, wait.is_overdue = wait.deadline + rest, False
            wait.save(update_fields=["resolution", "resolved_by", "resolved_at", "deadline", "is_overdue"])
    with connection.cursor() as cursor:
        for statement in features.parts_of_all(lambda each: each.on_reopen):
            cursor.execute(statement, [run.id])
    return questions


def await_again(run: Run, tape: Tape, *, now: datetime) -> list[e.Event]:
    """Wait again for the callbacks of accepted calls that timed out, unless the node continued after the timeout.
    The new wait lasts as long as the old one. The token stays with the call's first wait, and leads to the newest
    one."""
    opened: list[e.Event] = []
    for name in tape.to_await():
        slot = tape.slot(name)
        n, _ = slot.now.last_wait("webhook")
        old = run.waits.get(slot=name, attempt=slot.current, kind=Wait.Kind.WEBHOOK, n=n)
        promised = datetime.fromisoformat(payload_of(slot.now.accepted)["deadline"])
        spec = WaitSpec(str(run.id), name, slot.current, "webhook", n + 1, now + (promised - old.opened_at), old.detail)
        open_wait(run, spec, now=now)
        opened.append(spec.opened())
    return opened
