"""Everybody around the runs of `agents_released.py`, until all have ended, and what must have come of them: what was
registered then is undone by today's code, once each and the last first, and each run stays on its version.

Who moves runs to another version meanwhile, and forks one, is in `people_moved.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.models import Event
from runs.certification import results
from runs.certification.known import KnownProbes
from runs.engine.runtime import Runtime
from runs.models import Process, Ramp, RampStart, Run, Served
from runs.services import callbacks, lifecycle, questions, reconciling, signals
from runs.services.families import wishes
from runs.services.releases import acts
from runs.services.releases.bodies import RaiseBody, RampActBody
from runs.services.releases.choosing import VersionClosed
from runs.services.starts import keys, turns
from runs.workers import failover, timers
from tests.runs.stage import Stage, events, now, output, waiting
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.agents_released import careless, released, released_2, released_3, tell
from tests.upgrade.people_later import Later
from tests.world import OLGA, SHOP

WHY = "the test says so"
CUSTOMERS = [f"customer {n}" for n in range(8)]
_PARENTS = ("undone with its child", "half undone with its child")
# What each of those that undo was started to do, and how it ends.
WISHES = {
    "can be undone": "wait", "ends well": "well", "undone later by a callback": "file", "to be undone": "wait",
    "left": "wait", "undone": "nothing", "at the undo's gate": "charge", "paused at the undo's gate": "paused",
    "an undo that is made again": "nothing", "an undo that is left": "nothing", "an undo in doubt": "write",
    "held before an undo": "nothing", "held after an undo": "nothing", **dict.fromkeys(_PARENTS, "parent"),
}  # fmt: skip
ENDS = {"ends well": "completed", **dict.fromkeys(("to be undone", "left", *_PARENTS), "cancelled")}
_FEE = ["charge a fee", "refund a fee (charge:a fee)"]
# What a wish does to the outside between the effects that all of them have.
WISHED = {
    "well": ["tell all is well"], "file": ["file a form", "unfile a form (answered)"], "charge": _FEE, "paused": _FEE,
    "write": ["write a letter", "recall a letter (write:a letter)"],
    "parent": ["charge of the parent", "refund of the parent (charge:of the parent)"],
}  # fmt: skip
STAND = ("ends well", "left", "an undo that is left")
VERSIONS = {
    "of a closed version": "3.0.0", "begun by a ramp that was taken back": "2.0.0",
    "in doubt where keys are ignored": "1.0.0",
}  # fmt: skip
# What no dump of before has an event of.
KINDS = {"EffectUndone", "UndoBegun", "UndoRegistered", "VersionAssigned"}


class Released(Later):
    """One run of a dump and its situation, with its children."""

    def wanted(self) -> list[str]:
        """Every effect of it and of its children, each once."""
        if self.name in WISHES:
            wish = WISHES[self.name]
            theirs = [*_around(wish, is_undone=self.name not in STAND), *WISHED.get(wish, [])]
            return sorted(theirs + (_around("child", is_undone=True) if wish == "parent" else []))
        version = self.last.version
        more = ["careless a parcel"] if self.name == "in doubt where keys are ignored" else []
        return sorted([f"tell before {version}", f"tell after {version}", *more])


def _around(wish: str, *, is_undone: bool) -> list[str]:
    done = [f"book first {wish}", f"tell all of {wish}"]
    return [*done, f"unbook first {wish} (book:first {wish})"] if is_undone else done


def remembered_released(dump: Path) -> tuple[list[Released], dict[str, str]]:
    """The runs, and which version each business key came out on."""
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    found = [Released(name, UUID(run_id)) for name, run_id in told.get("released", {}).items()]
    return found, told.get("keys", {})


class Knowing(Stage):
    """A stage whose worker knows what probes found, as every worker does."""

    @property
    def runtime(self) -> Runtime:
        return replace(super().runtime, certificates=KnownProbes(self.wait(self.connected())))


def goes_by_what_was_set(stage: Stage, known: dict[str, str]) -> None:
    """A closed version is closed, a key comes out where it did, and what probes found is believed."""
    assert {*Event.objects.values_list("kind", flat=True).distinct()} >= KINDS
    found = results.newest()
    assert results.standing_of(found, released.name, tell).word in ("certified", "unclear", "expired")
    assert results.standing_of(found, released.name, careless).is_unsafe
    Process.objects.filter(pk=stage.worker.id).update(last_heartbeat_at=now())
    Served.objects.bulk_create(
        Served(worker=stage.worker.id, graph_id=each.graph_id) for each in (released, released_2, released_3)
    )
    try:
        lifecycle.start(released_3.graph_id, {"what": "wait"}, by=SHOP)
    except VersionClosed:
        pass
    else:
        raise AssertionError("a closed version took a start")
    assert {name: _again(name) for name in CUSTOMERS} == known


def _again(name: str) -> str:
    """The version that another start of a customer gets."""
    wanted = keys.Wanted(released.name, {"what": "wait"}, business_key=name, on_conflict="queue", tags=("again",))
    with transaction.atomic():
        return keys.start(wanted, by=SHOP).run.version


def bring_released_to_their_ends(stage: Stage, runs: list[Released]) -> list[Released]:
    """As `people.bring_to_their_ends`; with those that were started since. The ramp is raised before, and finished
    after."""
    ramp = Ramp.objects.get(ended_at__isnull=True)
    acts.raise_to(ramp.pk, RaiseBody(share=Decimal(90), justification=WHY), by=OLGA)
    since = [Released(f"again {run.pk}", run.pk) for run in Run.objects.filter(tags=["again"])]
    left_alone = next(each.id for each in runs if each.name == "an undo that is left")
    for _ in range(20):
        _drive_all(stage)
        left = [run for each in (*runs, *since) for run in each.family if run.ended_at is None]
        if not left:
            acts.finish(ramp.pk, RampActBody(justification=WHY), by=OLGA)
            return since
        for run in left:
            _serve(stage, run, "leave" if run.pk == left_alone else "retry")
        timers.sweep()
    raise AssertionError(f"still not ended: {[(str(run.pk), str(run.state)) for run in left]}")


def _drive_all(stage: Stage) -> None:
    is_busy = True
    while is_busy:
        failover.watch()
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
        is_busy = stage.drive() != "idle" or bool(timers.tell_parents() or wishes.align())
        is_busy = is_busy or bool(turns.pass_on_from(turns.ended()))


def _serve(stage: Stage, run: Run, decision: str) -> None:
    """What a run waits for, given; `decision` is what an operator says of an undo that failed."""
    if str(run.state) == "paused":
        lifecycle.resume(run.id, by=OLGA, justification="go on")
    for wait in waiting(run):
        match wait.kind:
            case "approval":
                stage.decide(run)
            case "webhook":
                callbacks.receive_callback(OUTSIDE.urls[str(run.id)].rsplit("/", 1)[1], {"ref": "answered"})
            case "signal":
                signals.signal(run.id, "go", {"a": 1}, by=SHOP)
            case "input":
                questions.answer(run.id, wait.id, {"decision": decision, "justification": WHY}, by=OLGA)
            case "reconcile":
                said = {"verdict": "happened", "receipt": {"ref": "seen"}, "justification": "looked it up"}
                reconciling.reconcile(run.id, **said, by=OLGA)
            case "child":
                pass
            case _:
                raise AssertionError(f"{run.pk} waits for {wait.kind}")


def released_well(each: Released, known: Mapping[str, str]) -> None:
    """How it ended, what it did to the outside, and where it ran."""
    name, run = each.name, each.last
    assert str(run.state) == ENDS.get(name, "failed" if name in WISHES else "completed"), (name, run.state)
    assert each.effects() == each.wanted(), name
    for one in each.family:
        order = [event.of_slot for event in events(one, e.EffectUndone)]
        intents = {event.slot: event.seq for event in _intents(one)}
        assert sorted(order, key=lambda slot: -intents[slot]) == order and len({*order}) == len(order), name
    if name in WISHES:
        return
    assert run.version == output(run)[0] == ({**VERSIONS, **known}.get(name) or _assigned(run)), name
    if told := events(run, e.VersionAssigned):
        assert run.version == _assigned(run) and RampStart.objects.get(run_id=run.pk).is_new == told[0].is_new


def _assigned(run: Run) -> str:
    (told,) = events(run, e.VersionAssigned)
    return str(told.to_version if told.is_new else told.from_version)


def _intents(run: Run) -> Iterable[Event]:
    return Event.objects.filter(run_id=run.pk, kind="ToolInvoked")
