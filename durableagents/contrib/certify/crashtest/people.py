"""Simulate the people of a crash test.

They approve, answer, and settle unknown outcomes according to the effects in the upstream system.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group, User
from django.db import transaction

from approvals.models import Approval
from approvals.services import AlreadyVoted, decide
from durableagents.contrib.certify import call_record
from durableagents.contrib.certify.crashtest.effects import Source
from durableagents.contrib.certify.crashtest.report import CaseResult, Entry, effects_of_run, find_effect
from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.models import Event, LedgerEntry
from ledger.web.roles import OPERATOR
from runs.journal.asked.queues import QUEUES
from runs.models import Wait
from runs.services import lifecycle, questions, reconciling, signals

WHY = "decided by the crash test"
OPERATES = Actor("user", "crashtest-operator", role=OPERATOR, auth="session")
STARTER = Actor("user", "crashtest-starter", role="integrator", auth="session")
MAX_RETRIES = 2
MAX_DECIDERS = 40  # number of accounts to try where several people must decide


class People:
    """Acts for the simulated people of all cases, and makes timers fire at once."""

    def __init__(self, answers: dict[str, Any], source: Source) -> None:
        self._answers, self._source = answers, source
        self._retried: dict[str, int] = {}

    def attend(self, result: CaseResult) -> None:
        """Answer a run's open waits. Waits that can't be answered yet are tried again later."""
        for wait in Wait.objects.filter(run_id=UUID(result.run), resolved_at__isnull=True).order_by("opened_at"):
            try:
                self._answer(result, wait)
            except (
                DurableAgentsError
            ) as error:  # for example, because the worker is still parking the run, or isn't proven dead yet
                _note(result, f"{wait.kind}: {error.detail}", limit=1)

    def _answer(self, result: CaseResult, wait: Wait) -> None:
        match wait.kind:
            case "timer":
                Wait.objects.filter(pk=wait.pk, deadline__gt=database_now()).update(deadline=database_now())
            case "approval":
                self._decide(result, wait)
            case "input":
                self._reply(result, wait)
            case "signal":
                name = str(wait.detail.get("name", ""))
                if name not in (known := self._answers.get("signals", {})):
                    _note(result, f"the signal {name!r} is missing: give it in --answers")
                    return
                signals.signal(wait.run_id, name, known[name], by=STARTER)
            case "reconcile":
                self._settle(result, wait)
            case "operator":
                self._look(result, wait)
            case "budget":
                _note(result, "it used up its budget")

    def _decide(self, result: CaseResult, wait: Wait) -> None:
        approval = Approval.objects.filter(wait_id=wait.pk, state="open").first()
        if approval is None:
            return
        verdict = "approve" if self._answers.get("approve", True) else "reject"
        role = QUEUES[approval.queue]
        by = Actor("user", f"crashtest-{approval.queue}", role=role, auth="session")
        # Where several people must decide, each needs an account of their own.
        several = (_somebody(approval.queue, role, n) for n in range(MAX_DECIDERS))
        for each in [by] if approval.case_id is None else several:
            with suppress(AlreadyVoted):
                decided = decide(approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification=WHY, by=each)
                if decided.state != "open":
                    return

    def _reply(self, result: CaseResult, wait: Wait) -> None:
        known, name = self._answers.get("answers", {}), str(wait.detail.get("title", ""))
        if name not in known and "*" not in known:
            _note(result, f"the answer to {name!r} is missing: add it to the --answers file")
            return
        by = Actor("user", "crashtest-answers", role=questions.roles_for(wait)[0], auth="session")
        questions.answer(wait.run_id, wait.pk, known.get(name, known.get("*")), by=by, justification=WHY)

    def _settle(self, result: CaseResult, wait: Wait) -> None:
        entries = read_entries(result.run)
        tool = str(wait.detail.get("tool", ""))
        found = find_effect(wait.slot, wait.attempt, entries, effects_of_run(result.run, entries, self._source.read()))
        about = f"{tool}: {'it happened' if found else 'it did not'}"
        if found is None:
            self._reconcile(wait, "did_not", None)
        else:
            try:
                self._reconcile(wait, "happened", self._receipt(result, wait, tool, found.result))
            except InvalidInput as error:
                _note(
                    result,
                    f"{tool}: the receipt is missing ({error.detail}): add one to the --answers file under receipts",
                )
                self._reconcile(wait, "fail", None)
                about = f"{tool}: fail"
        result.asked.append(about)

    def _reconcile(self, wait: Wait, verdict: str, receipt: Any) -> None:
        with transaction.atomic():
            reconciling.reconcile(
                wait.run_id,
                verdict=verdict,
                receipt=receipt,
                justification=WHY,
                by=OPERATES,
                wait_id=wait.pk,
            )

    def _receipt(self, result: CaseResult, wait: Wait, tool: str, seen: Any) -> Any:
        if tool in (known := self._answers.get("receipts", {})):
            return known[tool]
        done = [
            line
            for line in call_record.read(self._source.record)
            if line["what"] == "done"
            and (line["run"], line["slot"], line["attempt"]) == (result.run, wait.slot, wait.attempt)
        ]
        return done[-1].get("result") if done else seen

    def _look(self, result: CaseResult, wait: Wait) -> None:
        reason = str(wait.detail.get("reason", ""))
        if self._retried.get(result.run, 0) >= MAX_RETRIES:
            _note(result, f"the run stopped for an operator: {reason}")
            return
        lifecycle.retry(wait.run_id, by=OPERATES, justification=WHY)
        self._retried[result.run] = self._retried.get(result.run, 0) + 1
        result.asked.append(f"operator: {reason}")


def read_entries(run: str) -> list[Entry]:
    """Return the entries of a run's ledger, with the verdict of each reconciliation."""
    verdicts: dict[tuple[str | None, int], list[str]] = {}
    for row in Event.objects.filter(run_id=run, kind=e.ToolReconciled.KIND):
        event = e.decode(row.clear, None)
        assert isinstance(event, e.ToolReconciled)
        verdicts.setdefault((event.slot, event.attempt), []).append(event.verdict)
    return [
        Entry(
            row.slot,
            row.attempt,
            row.fact,
            row.tool,
            row.key,
            verdicts.get((row.slot, row.attempt), [""])[-1] if row.fact == "reconciled" else "",
        )
        for row in LedgerEntry.objects.filter(run_id=run).order_by("id")
    ]


def _note(result: CaseResult, text: str, limit: int = 5) -> None:
    if text not in result.notes and len(result.notes) < limit:
        result.notes.append(text)


def _somebody(queue: str, role: str, n: int) -> Actor:
    """Return an actor for one of several people who must decide."""
    user, _ = User.objects.get_or_create(username=f"crashtest-{queue}-{n}")
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return Actor("user", user.get_username(), role=role, auth="session", person=user.pk)
