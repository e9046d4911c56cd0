"""Everybody around the runs of a dump: whoever decides, answers, signals and settles, until all of them have ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from django.core.management import call_command

from approvals.models import Approval
from runs.models import Run, Wait
from runs.services import callbacks, lifecycle, questions, reconciling, signals
from runs.workers import failover, timers
from tests.runs.stage import Stage, now, waiting
from tests.upgrade.agents import OUTSIDE
from tests.world import LENA, OLGA, SHOP

# How each situation ends that doesn't end well.
ENDS = {
    "operator": "cancelled", "cancelled": "cancelled", "doomed unknown": "cancelled",
    "held and asked to cancel": "cancelled",
    "refused": "failed",
}  # fmt: skip
# What each wish does to the outside between the calls that all of them make.
WISHED = {
    "gate": ["pay po"], "callback": ["ask form"], "mail": ["mail letter"], "think": ["pay thought"],
    "branches": ["ask form", "pay po"],
}  # fmt: skip


@dataclass(frozen=True)
class Old:
    """One run of a dump: its situation, and what it was started to do."""

    name: str
    id: UUID
    what: str

    @property
    def run(self) -> Run:
        return Run.objects.get(pk=self.id)

    def effects(self) -> list[str]:
        return sorted(f"{e.tool} {json.loads(e.body)['name']}" for e in OUTSIDE.effects if e.run == str(self.id))

    def wanted(self) -> list[str]:
        """Every effect of a run that completes, each once."""
        around = [f"order {place} {self.what}" for place in ("first", "before", "last")]
        return sorted(around + WISHED.get(self.what, []))


def remembered(dump: Path) -> list[Old]:
    """The runs of a dump; the other side of their tools remembers what it did for them."""
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    OUTSIDE.remember(told)
    return [Old(name, UUID(run_id), what) for name, (run_id, what) in told["runs"].items()]


def bring_to_their_ends(stage: Stage, runs: list[Old]) -> None:
    """Do for each run what it waits for, and drive whatever is ready, until nothing is left to do."""
    call_command("declare_dead", host="old-host", reason="it was switched off", verbosity=0)
    retried = next(old for old in runs if old.name == "failed")
    lifecycle.retry(retried.id, by=OLGA, justification="it is in stock again")
    for _ in range(20):
        failover.watch()
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
        while stage.drive() != "idle":
            pass
        left = [old for old in runs if old.run.ended_at is None]
        if not left:
            return
        for old in left:
            serve(stage, old)
        timers.sweep()
    raise AssertionError(f"still not ended: {[(old.name, str(old.run.state)) for old in left]}")


def serve(stage: Stage, old: Old) -> None:
    """What a run waits for, given."""
    if str(old.run.state) == "paused":
        lifecycle.resume(old.id, by=OLGA, justification="go on")
    for wait in waiting(old.run):
        give(stage, old, wait)


def give(stage: Stage, old: Old, wait: Wait) -> None:
    match wait.kind:
        case "approval":
            approval = Approval.objects.get(run=old.run, state="open")
            assert approval.queue == "finance_po"
            stage.decide(old.run)
        case "webhook":
            callbacks.receive_callback(OUTSIDE.urls[str(old.id)].rsplit("/", 1)[1], {"ref": "answered"})
        case "input":
            questions.answer(old.id, wait.id, {"street": "Quay 1"}, by=LENA, justification="")
        case "signal":
            signals.signal(old.id, "go", {"a": 1}, by=SHOP)
        case "timer":
            Wait.objects.filter(pk=wait.pk).update(deadline=now())
        case "reconcile":
            reconciling.reconcile(
                old.id, verdict="happened", receipt={"ref": "seen"}, justification="looked it up", by=OLGA
            )
        case "operator":
            lifecycle.cancel(old.id, by=OLGA, justification="a forged grant")
        case _:
            raise AssertionError(f"{old.name} waits for {wait.kind}")
