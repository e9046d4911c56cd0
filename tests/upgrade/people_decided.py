"""Everybody around the runs of `agents_decided.py`: who was let decide then decides by today's code, up to the same
limit and in the same place, and nobody else does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from approvals.genuine import genuine
from approvals.models import Approval, Decision
from approvals.queue_models import Deputy, Limit, Queue
from approvals.queues import acts
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.verification.runs import verify
from runs.models import Run
from runs.services.families import wishes
from runs.workers import timers
from tests.approvals.setup import say
from tests.runs.stage import Stage, now
from tests.upgrade.agents_decided import QUEUE, SHUT
from tests.upgrade.make_decided import BILLS
from tests.upgrade.people_later import Later

WHY = "the test says so"


class Decided(Later):
    """One run of a dump and its situation, with its child."""

    def wanted(self) -> list[str]:
        """Every effect of it and of its child, each once."""
        if self.name == "said no to":
            return []
        tool = "settle_there" if self.name == "at a closed queue" else "settle"
        what = "shared" if self.name.startswith("shared") else self.name
        return sorted([f"{tool} {what}", *(["settle half"] if what == "shared" else [])])


def remembered_decided(dump: Path) -> list[Decided]:
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    return [Decided(name, UUID(run_id)) for name, run_id in told.get("decided", {}).items()]


def _actor(name: str) -> Actor:
    return Actor("user", name, auth="session", address="192.0.2.7", person=User.objects.get(username=name).pk)


def _open(run: Run) -> Approval:
    return run.approvals.get(state="open")


def _refused(approval: Approval, who: str, why: str) -> None:
    with pytest.raises(Forbidden, match=re.escape(why)):
        say(approval, _actor(who))


def is_as_it_was_set() -> None:
    """Rows that were sealed then are genuine, and what was decided then is believed."""
    for model in (Queue, Limit, Deputy):
        rows = list(model.objects.all())
        assert rows and all(row.is_genuine for row in rows), model
    rows = list(Decision.objects.filter(approval__queue=QUEUE))
    assert len(rows) == 2 and genuine(rows) == [True, True]
    assert {row.by for row in rows if row.standing and "deputy_of" in row.standing} == {"user:bob"}


def bring_decided_to_their_ends(stage: Stage, runs: list[Decided]) -> None:
    """Each is decided by whoever may, after those who may not have tried."""
    named = {each.name: each for each in runs}
    assert set(named) == set(BILLS)
    _refused(_open(named["above the limit"].last), "ann", "limit of $1,000")
    _refused(_open(named["above the limit"].last), "bob", "limit of ann of $1,000")
    _refused(_open(named["at a closed queue"].last), "cleo", "is closed to decisions")
    acts.open_again(SHUT, by=_actor("boss"), justification=WHY)
    whose = {"above the limit": "cleo", "a deputy's to decide": "bob"}
    for _ in range(20):
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
        while stage.drive() != "idle" or timers.tell_parents() or wishes.align():
            pass
        left = [run for each in runs for run in each.family if run.ended_at is None]
        if not left:
            return
        for each in runs:
            for run in each.family:
                for approval in run.approvals.filter(state="open"):
                    say(approval, _actor(whose.get(each.name, "ann")))
    raise AssertionError(f"still not ended: {[(str(run.pk), str(run.state)) for run in left]}")


def decided_well(each: Decided) -> None:
    """How it ended, and what it did to the outside."""
    assert str(each.last.state) == ("failed" if each.name == "said no to" else "completed"), each.name
    assert each.effects() == each.wanted(), each.name
    for run in each.family:
        assert verify(run.pk).problems == [], each.name
