"""The eighth part of a dump: runs of `agents_steered.py`, in the situations that only code knows which hands something
to a run, asks two to settle, acts on many, takes runs back, and gives back what stood still. Made by `make.py` where
the code at hand is of then, behind `make_granted.py`, whose administrators it needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from approvals.models import Approval
from approvals.queues import acts as queues
from approvals.queues.bodies import QueueBody
from approvals.services import decide
from durableagents import Budget, TransportError
from durableagents.identity import invitations
from ledger.actors import Actor
from ledger.four_eyes import guards
from ledger.four_eyes.guards import GuardsBody
from runs.models import NEVER, Process, Run, Wait
from runs.queries.bulk.choosing import chosen
from runs.services import lifecycle, reconciling
from runs.services.bulk import acts as bulk
from runs.services.bulk import working
from runs.services.bulk.bodies import BatchBody
from runs.services.fleet import hosts
from runs.services.fleet.requeueing import requeue
from runs.services.injecting.acts import go_on
from runs.services.injecting.bodies import ContextBody, Seen
from runs.services.injecting.looking import look
from runs.services.settling import upstream
from runs.workers import failover
from runs.workers.failover import MOST_DEATHS
from tests.approvals.setup import somebody
from tests.approvals.timing import calendar, sweep, timing
from tests.halts.halting import everybody_goes_on, halt, lift
from tests.runs.stage import Stage, fresh, now, waiting
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.agents_steered import BROKEN, OFFICE, steered
from tests.upgrade.cast_granted import actor as signed_in
from tests.world import OLGA, SHOP, Killed

WHY, WORDS, ROLE = "as it was then", "Only from the second supplier.", "approver_office"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HAPPENED: dict[str, Any] = {"verdict": "happened", "receipt": {"ref": "seen there"}}
LOST, SILENT = "lost.example", "silent.example"


@dataclass(frozen=True)
class Case:
    """What a run is started to do, and how it ends."""

    what: str
    ends: str = "completed"


PAUSED_TOGETHER = tuple(f"paused with others {n}" for n in (1, 2, 3))
SAID_TOGETHER = tuple(f"said of with others {n}" for n in (1, 2))
OPEN = {
    "handed a note, and waiting": Case("wait"), "handed words, and asking": Case("think"),
    "retried with a note": Case("note"),
    "one word on it": Case("post"), "one word on it after the other side was asked": Case("post"),
    "the other side is to be asked": Case("post"),
    "halted by a calendar": Case("clear"), "halted a while, and asked": Case("clear"),
    "retried, and asked again": Case("break"), "failed while it asked": Case("break"),
    "at its cap": Case("reserve"), "cancelled at its cap": Case("reserve", "cancelled"),
    "held in the midst of undoing": Case("undo", "failed"),
    "died nine times": Case("deliver"), "died too often": Case("deliver"), "given back to the pool": Case("deliver"),
    "sent by a host that was declared dead": Case("post"), "sent by a host that is silent": Case("post"),
    **dict.fromkeys(PAUSED_TOGETHER, Case("wait")), **dict.fromkeys(SAID_TOGETHER, Case("post")),
}  # fmt: skip
ENDED = {
    "handed a note, and over": Case("note"), "settled by two": Case("post"), "halted a while, and over": Case("clear"),
}  # fmt: skip
CASES = OPEN | ENDED


def actor(name: str) -> Actor:
    """Somebody, signed in, as an operator or as the one who decides."""
    role = ROLE if name == "otto" else "operator"
    return Actor("user", name, role=role, auth="session", address="192.0.2.7", person=signed_in(name).person)


def approve(case: Approval) -> Approval:
    return decide(case.id, verdict="approve", plan_hash=case.plan_hash, justification=WHY, by=actor("otto"))


def handed(run: Run, act: str = "resume", **what: Any) -> Run:
    """An operator hands it something, having looked at it."""
    seen = look(run.id)
    body = ContextBody(**what, seen=Seen(seq=seen.seq, head=seen.head))
    return go_on(act, run.id, body, by=actor("ann"), justification=WHY)


def doubt_of(run: Run) -> Wait:
    return Wait.objects.get(run=run, kind="reconcile", resolved_at=None)


class Steering:
    """Leaves one run per situation. What is ready is put off, as `make.Maker` does; what a halt put aside is not."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, str] = {}

    def start(self, name: str, *tags: str, **more: Any) -> Run:
        wish = {"what": CASES[name].what, "name": name}
        return self.keep(name, lifecycle.start(steered.name, wish, by=SHOP, tags=list(tags), **more))

    def keep(self, name: str, run: Run) -> Run:
        self.runs[name] = str(run.id)
        Run.objects.filter(ready_at__lt=NEVER).update(ready_at=now() + timedelta(days=1))
        return fresh(run)

    def goes_on(self, run: Run, worker: Any = None) -> str:
        Run.objects.filter(pk=run.pk, ready_at__lt=NEVER).update(ready_at=now())
        how = self.stage.drive(worker)
        name = next(name for name, id in self.runs.items() if id == str(run.pk))
        self.keep(name, run)
        return how

    def driven(self, name: str, *tags: str, how: str = "parked", **more: Any) -> Run:
        run = self.start(name, *tags, **more)
        assert (found := self.goes_on(run)) == how, (name, found)
        return fresh(run)

    def in_doubt(self, name: str) -> Run:
        OUTSIDE.trouble["post"] = ("after", TransportError("cut"))
        return self.driven(name)

    def ends(self, run: Run, how: str = "completed") -> None:
        assert (found := self.goes_on(run)) == how, found


def _set_up(head: Actor) -> None:
    for name in ("ann", "ben"):
        somebody(name, "operator")
    somebody("otto", ROLE)
    User.objects.create_superuser("hugo", "hugo@example.org")
    queues.create(QueueBody(name=OFFICE, title=OFFICE, role=ROLE, justification=WHY), by=head)
    calendar(head, "always", week=dict.fromkeys(DAYS, "00:00-24:00"))
    timing(head, OFFICE, calendar="always")


def handing(make: Steering) -> None:
    """What an operator hands to a run that goes on, and to one that is retried."""
    for name, what in (
        ("handed a note, and waiting", {"patch": {"note": "a note"}}), ("handed words, and asking", {"message": WORDS}),
    ):  # fmt: skip
        run = make.driven(name)
        lifecycle.pause(run.id, by=OLGA, justification=WHY)
        make.keep(name, handed(run, **what))
    for name in ("handed a note, and over", "retried with a note"):
        run = make.driven(name, how="failed")
        make.keep(name, handed(run, "retry", patch={"note": "a note"}))
    make.ends(Run.objects.get(pk=make.runs["handed a note, and over"]))


def recovering(make: Steering) -> None:
    """Workers that died, were taken a run from, or are on hosts that nobody hears of. First: who watches frees all that
    is held."""
    for name, deaths in (("died nine times", MOST_DEATHS - 1), ("died too often", MOST_DEATHS)):
        run = make.start(name)
        for _ in range(deaths):
            worker = make.stage.hire(is_dead=True)
            Run.objects.filter(pk=run.pk).update(ready_at=now())
            assert len(make.stage.claim(worker)) == 1 and failover.worker_died(worker.id, "reaped") == 1
        make.keep(name, run)
    run = make.start("given back to the pool")
    Run.objects.filter(pk=run.pk).update(ready_at=now())
    assert len(make.stage.claim()) == 1
    make.keep("given back to the pool", requeue(run.id, by=OLGA, justification=WHY))
    for name, host in (("sent by a host that was declared dead", LOST), ("sent by a host that is silent", SILENT)):
        run, worker = make.start(name), make.stage.hire(is_dead=True)
        OUTSIDE.trouble["post"] = ("after", Killed())
        assert make.goes_on(run, worker) == "killed"
        Process.objects.filter(pk=worker.id).update(host=host, last_heartbeat_at=now() - timedelta(minutes=5))
        if host == LOST:
            assert hosts.declare_dead(host, by=OLGA, justification=WHY) == 1 and failover.watch() == 1
            assert make.goes_on(run) == "parked"


def acting_on_many(make: Steering) -> None:
    """One act that is done on two of three runs, and one that has not come to any."""
    for names, act in (
        (PAUSED_TOGETHER, {"action": "pause"}), (SAID_TOGETHER, {"action": "reconcile", **HAPPENED}),
    ):  # fmt: skip
        ids = [str((make.driven if act["action"] == "pause" else make.in_doubt)(name).id) for name in names]
        body = BatchBody.model_validate({**act, "justification": WHY, "runs": ids})
        bulk.make(body, *chosen(body), by=actor("ann"), held=frozenset(["operator"]))
        assert working.work(0)


def settling(make: Steering) -> None:
    """One of two has said what became of a call; and the other side is asked."""
    for name in ("one word on it", "settled by two"):
        assert reconciling.reconcile(make.in_doubt(name).id, **HAPPENED, justification=WHY, by=actor("ann")) is not None
    done = Run.objects.get(pk=make.runs["settled by two"])
    assert reconciling.reconcile(done.id, **HAPPENED, justification=WHY, by=actor("ben")) is None
    make.ends(done)
    for name in ("one word on it after the other side was asked", "the other side is to be asked"):
        run = make.in_doubt(name)
        make.keep(name, upstream.ask(run.id, doubt_of(run).pk, justification=WHY, by=actor("ann")))
    run = Run.objects.get(pk=make.runs["one word on it after the other side was asked"])
    assert make.goes_on(run) == "parked"
    assert reconciling.reconcile(run.id, **HAPPENED, justification=WHY, by=actor("ben")) is not None


def standing_still(make: Steering) -> None:
    """Questions whose clock stood, or stands, while nobody could answer."""
    for name in ("halted a while, and asked", "halted a while, and over"):
        make.driven(name, "upgrade-a-while")
    it = halt("tag", "upgrade-a-while")
    sweep()
    lift(it)
    everybody_goes_on()
    sweep()
    approve(Approval.objects.get(run=make.runs["halted a while, and over"]))
    make.ends(Run.objects.get(pk=make.runs["halted a while, and over"]))
    for name in ("retried, and asked again", "failed while it asked"):
        run = make.driven(name)
        lifecycle.pause(run.id, by=OLGA, justification=WHY)
        Run.objects.filter(pk=run.pk).update(is_woken=True)  # as a worker that paused it leaves it
        lifecycle.resume(run.id, by=OLGA, justification=WHY)
        BROKEN.add(name)
        make.ends(run, "failed")
        BROKEN.remove(name)
    again = Run.objects.get(pk=make.runs["retried, and asked again"])
    make.keep("retried, and asked again", lifecycle.retry(again.id, by=OLGA, justification=WHY))
    assert make.goes_on(again) == "parked" and [wait.kind for wait in waiting(again)] == ["approval"]
    make.driven("halted by a calendar", "upgrade-still")
    halt("tag", "upgrade-still")


def undoing(make: Steering) -> None:
    make.driven("at its cap", how="paused", budget=Budget(tool_calls=1))
    run = make.driven("cancelled at its cap", how="paused", budget=Budget(tool_calls=1))
    lifecycle.cancel(run.id, by=OLGA, justification=WHY, effects="undo")
    run = make.start("held in the midst of undoing")
    OUTSIDE.trouble["free"] = ("after", Killed())
    assert make.goes_on(run, make.stage.hire(is_dead=True)) == "killed"


def make_all(stage: Stage) -> dict[str, Any]:
    make, head = Steering(stage), signed_in("head")
    _set_up(head)
    recovering(make)
    handing(make)
    guards.require(GuardsBody(families=["outcomes", "roles"], justification=WHY), by=head)
    for part in (acting_on_many, settling, standing_still, undoing):
        part(make)
    said = {"name": "ines", "email": "ines@example.org", "is_admin": False, "days": 30}
    _, link = invitations.invite(**said, roles=[], by=head, justification=WHY)
    assert {*make.runs} == {*CASES} and not OUTSIDE.trouble
    return {"steered": make.runs, "invited since": {"ines": link.rsplit("/", 1)[1]}}
