"""The third part of a dump: runs of `agents_released.py`, in the situations that only code with undo and releases
knows. Made by `make.py` where the code at hand is of then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from durableagents import BusinessFailure, TransportError
from runs.certification.probing import Asked, prepare, probe
from runs.models import Process, Run, Served
from runs.services import lifecycle
from runs.services.releases import acts
from runs.services.releases.bodies import RampActBody, RampBody
from runs.services.starts import keys
from tests.runs.stage import Stage, fresh, kinds, now
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.agents_released import AGENTS, careless, released, released_3, tell, undoer
from tests.world import OLGA, SHOP, Killed

WHY = "as it was then"


class Released:
    """Leaves one run per situation. What is ready is put off, as `make.Maker` does."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, str] = {}
        self.keys: dict[str, str] = {}

    def keep(self, name: str, run: Run) -> Run:
        self.runs[name] = str(run.id)
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now() + timedelta(days=1))
        return fresh(run)

    def driven(self, name: str, what: str, *how: str, agent: str = undoer.name) -> Run:
        run = lifecycle.start(agent, {"what": what}, by=SHOP)
        found: list[str] = []
        while (one := self.stage.drive()) != "idle":
            found.append(one)
        assert found == [*(how or ("parked",))], (name, found)
        return self.keep(name, run)

    def killed(self, name: str, what: str, trouble: str, when: str) -> None:
        """A worker holds it that is gone, and nobody knows yet."""
        run = lifecycle.start(undoer.graph_id, {"what": what}, by=SHOP)
        OUTSIDE.trouble[trouble] = (when, Killed())
        assert self.stage.drive(self.stage.hire(is_dead=True)) == "killed"
        self.keep(name, run)

    def cancelled(self, run: Run, effects: str) -> None:
        lifecycle.cancel(run.id, by=OLGA, justification=WHY, effects=effects)
        self.keep(next(name for name, id in self.runs.items() if id == str(run.id)), run)


def undoing(make: Released) -> None:
    """Before, in the middle of, and after."""
    make.driven("can be undone", "wait")
    make.driven("ends well", "well")
    make.driven("undone later by a callback", "file")
    make.cancelled(make.driven("to be undone", "wait"), "undo")
    make.cancelled(make.driven("left", "wait"), "leave")
    make.driven("undone", "nothing", "failed")
    make.driven("at the undo's gate", "charge")
    paused = make.driven("paused at the undo's gate", "paused")
    lifecycle.pause(paused.id, by=OLGA, justification="hold on")
    make.keep("paused at the undo's gate", paused)
    for name in ("an undo that is made again", "an undo that is left"):
        OUTSIDE.trouble["unbook"] = ("before", BusinessFailure("too late", code="late"))
        make.driven(name, "nothing")
    doubted = make.driven("an undo in doubt", "write")
    make.stage.decide(doubted)
    Run.objects.filter(pk=doubted.pk).update(ready_at=now())
    OUTSIDE.trouble["recall"] = ("after", TransportError("cut"))
    assert make.stage.drive() == "parked" and kinds(doubted).count("ToolOutcomeUnknown") == 1
    make.keep("an undo in doubt", doubted)
    make.killed("held before an undo", "nothing", "unbook", "before")
    make.killed("held after an undo", "nothing", "unbook", "after")
    make.cancelled(make.driven("undone with its child", "parent", "parked", "parked"), "undo")
    half = make.driven("half undone with its child", "parent", "parked", "parked")
    lifecycle.cancel(half.id, by=OLGA, justification=WHY, effects="undo")
    Run.objects.filter(pk=half.pk).update(ready_at=now())
    assert make.stage.drive() == "parked"
    make.keep("half undone with its child", half)


def releasing(make: Released) -> None:
    """A version that is closed, a ramp that was taken back, and one that is under way."""
    Process.objects.filter(pk=make.stage.worker.id).update(last_heartbeat_at=timezone.now() + timedelta(hours=1))
    Served.objects.bulk_create([Served(worker=make.stage.worker.id, graph_id=each.graph_id) for each in AGENTS])
    make.driven("of a closed version", "wait", agent=released_3.graph_id)
    acts.close(released.name, "3.0.0", by=OLGA, justification=WHY)
    body: dict[str, Any] = {
        "agent": released.name, "from_version": "1.0.0", "to_version": "2.0.0", "share": 100, "justification": WHY,
    }  # fmt: skip
    first = acts.begin(RampBody.model_validate(body), by=OLGA)
    make.driven("begun by a ramp that was taken back", "wait", agent=released.name)
    acts.roll_back(first.pk, RampActBody(justification=WHY), by=OLGA)
    acts.begin(RampBody.model_validate(body | {"share": 50, "tags": ["beta"], "failed": 20}), by=OLGA)
    for n in range(8):
        with transaction.atomic():
            wanted = keys.Wanted(released.name, {"what": "wait"}, business_key=f"customer {n}", on_conflict="queue")
            run = keys.start(wanted, by=SHOP).run
        assert make.stage.drive() == "parked"
        make.keep(f"customer {n}", run)
        make.keys[f"customer {n}"] = run.version
    assert {*make.keys.values()} == {"1.0.0", "2.0.0"}


def probing(make: Released) -> None:
    """What two other sides were seen to do, and a call in doubt to the one that ignores keys."""
    for each in (tell, careless):
        row, _ = probe(prepare(Asked(each.name, released.graph_id, {"name": "probe"})), by=OLGA, pause=0)
        assert row is not None
    run = lifecycle.start(released.graph_id, {"what": "careless"}, by=SHOP)
    OUTSIDE.trouble["careless"] = ("after", Killed())
    assert make.stage.drive(make.stage.hire(is_dead=True)) == "killed"
    make.keep("in doubt where keys are ignored", run)


def make_all(stage: Stage) -> dict[str, Any]:
    make = Released(stage)
    for part in (undoing, releasing, probing):
        part(make)
    return {"released": make.runs, "keys": make.keys}
