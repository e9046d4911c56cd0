"""Simulated people of a crash test: they approve, answer, and settle unknown outcomes by the outside effects."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group, User
from django.db import transaction

from approvals.models import Approval
from approvals.services import AlreadyVoted, decide
from durableagents.crashtest.effects import Source
from durableagents.crashtest.report import Entry, Told, has_happened, of_run
from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.models import Event, LedgerEntry
from ledger.web.roles import OPERATOR
from runs.certification import observing
from runs.journal.asked.queues import QUEUES
from runs.models import Wait
from runs.services import lifecycle, questions, reconciling, signals

WHY = "the crash test's own people"
OPERATES = Actor("user", "crashtest-operator", role=OPERATOR, auth="session")
STARTS = Actor("user", "crashtest-starter", role="integrator", auth="session")
MOST_RETRIES = 2
MOST_PEOPLE = 40  # deciders tried, where several decide


class People:
    """Act for the runs of a matrix, each by its `Told`. Timers fire at once."""

    def __init__(self, answers: dict[str, Any], source: Source) -> None:
        self._answers, self._source = answers, source
        self._retried: dict[str, int] = {}

    def attend(self, told: Told) -> None:
        """Answer a run's open waits; unanswerable ones are tried again later."""
        for wait in Wait.objects.filter(run_id=UUID(told.run), resolved_at__isnull=True).order_by("opened_at"):
            try:
                self._answer(told, wait)
            except DurableAgentsError as not_yet:  # its worker may be parking it, or not yet be proven dead
                _note(told, f"{wait.kind}: {not_yet.detail}", most=1)

    def _answer(self, told: Told, wait: Wait) -> None:
        match wait.kind:
            case "timer":
                Wait.objects.filter(pk=wait.pk, deadline__gt=database_now()).update(deadline=database_now())
            case "approval":
                self._decide(told, wait)
            case "input":
                self._reply(told, wait)
            case "signal":
                name = str(wait.detail.get("name", ""))
                if name not in (given := self._answers.get("signals", {})):
                    _note(told, f"nobody sends the signal {name!r}: give it in --answers")
                    return
                signals.signal(wait.run_id, name, given[name], by=STARTS)
            case "reconcile":
                self._settle(told, wait)
            case "operator":
                self._look(told, wait)
            case "budget":
                _note(told, "it used up its budget")

    def _decide(self, told: Told, wait: Wait) -> None:
        approval = Approval.objects.filter(wait_id=wait.pk, state="open").first()
        if approval is None:
            return
        verdict = "approve" if self._answers.get("approve", True) else "reject"
        role = QUEUES[approval.queue]
        by = Actor("user", f"crashtest-{approval.queue}", role=role, auth="session")
        # Several deciders need an account each.
        several = (_somebody(approval.queue, role, n) for n in range(MOST_PEOPLE))
        for each in [by] if approval.case_id is None else several:
            with suppress(AlreadyVoted):
                said = decide(approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification=WHY, by=each)
                if said.state != "open":
                    return

    def _reply(self, told: Told, wait: Wait) -> None:
        given, name = self._answers.get("answers", {}), str(wait.detail.get("title", ""))
        if name not in given and "*" not in given:
            _note(told, f"nobody answers {name!r}: give it in --answers")
            return
        by = Actor("user", "crashtest-answers", role=questions.roles_for(wait)[0], auth="session")
        questions.answer(wait.run_id, wait.pk, given.get(name, given.get("*")), by=by, justification=WHY)

    def _settle(self, told: Told, wait: Wait) -> None:
        entries = entries_of(told.run)
        tool = str(wait.detail.get("tool", ""))
        found = has_happened(wait.slot, wait.attempt, entries, of_run(told.run, entries, self._source.read()))
        about = f"{tool}: {'it happened' if found else 'it did not'}"
        if found is None:
            self._say(wait, "did_not", None)
        else:
            try:
                self._say(wait, "happened", self._receipt(told, wait, tool, found.result))
            except InvalidInput as wrong:
                _note(told, f"{tool}: nobody has a receipt ({wrong.detail}): give one in --answers under receipts")
                self._say(wait, "fail", None)
                about = f"{tool}: fail"
        told.asked.append(about)

    def _say(self, wait: Wait, verdict: str, receipt: Any) -> None:
        with transaction.atomic():
            reconciling.reconcile(
                wait.run_id, verdict=verdict, receipt=receipt, justification=WHY, by=OPERATES, wait_id=wait.pk
            )

    def _receipt(self, told: Told, wait: Wait, tool: str, seen: Any) -> Any:
        if tool in (given := self._answers.get("receipts", {})):
            return given[tool]
        done = [
            line
            for line in observing.read(self._source.record)
            if line["what"] == "done"
            and (line["run"], line["slot"], line["attempt"]) == (told.run, wait.slot, wait.attempt)
        ]
        return done[-1].get("result") if done else seen

    def _look(self, told: Told, wait: Wait) -> None:
        reason = str(wait.detail.get("reason", ""))
        if self._retried.get(told.run, 0) >= MOST_RETRIES:
            _note(told, f"it stopped for an operator: {reason}")
            return
        lifecycle.retry(wait.run_id, by=OPERATES, justification=WHY)
        self._retried[told.run] = self._retried.get(told.run, 0) + 1
        told.asked.append(f"operator: {reason}")


def entries_of(run: str) -> list[Entry]:
    """Return a run's ledger, with the verdict of each reconciliation."""
    said: dict[tuple[str | None, int], list[str]] = {}
    for row in Event.objects.filter(run_id=run, kind=e.ToolReconciled.KIND):
        event = e.decode(row.clear, None)
        assert isinstance(event, e.ToolReconciled)
        said.setdefault((event.slot, event.attempt), []).append(event.verdict)
    return [
        Entry(
            row.slot,
            row.attempt,
            row.fact,
            row.tool,
            row.key,
            said.get((row.slot, row.attempt), [""])[-1] if row.fact == "reconciled" else "",
        )
        for row in LedgerEntry.objects.filter(run_id=run).order_by("id")
    ]


def _note(told: Told, text: str, most: int = 5) -> None:
    if text not in told.notes and len(told.notes) < most:
        told.notes.append(text)


def _somebody(queue: str, role: str, n: int) -> Actor:
    """Return the actor of one of several deciders."""
    user, _ = User.objects.get_or_create(username=f"crashtest-{queue}-{n}")
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return Actor("user", user.get_username(), role=role, auth="session", person=user.pk)
