"""The second part of a dump: runs of `agents_later.py`, in the situations that only later code knows. Made by `make.py`
where the code at hand is of then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import transaction

from durableagents import Budget
from ledger.actors import Actor
from runs.engine.agents import registry
from runs.engine.content.reads import NoReads
from runs.journal.cache.reads import ReadCache
from runs.models import Run, Schedule
from runs.services import lifecycle, signals
from runs.services.bodies import PoolBody, ScheduleBody
from runs.services.budgets.raising import set_budget
from runs.services.limits import acts as limits
from runs.services.messages import sending
from runs.services.pools import acts as pools
from runs.services.schedules import acts as schedules
from runs.services.starts import keys, turns
from runs.services.starts.keys import Wanted
from runs.workers import starts, timers
from tests.fleet.conftest import until
from tests.runs.hosts import working
from tests.runs.stage import Stage, fresh, now
from tests.upgrade import agents
from tests.upgrade.agents_later import AGENTS, agent, guarded
from tests.world import OLGA, SHOP

WHY = "as it was then"


class Later:
    """Leaves one run, and whatever belongs to it, per situation. What is ready is put off, as `make.Maker` does."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, str] = {}

    def start(self, what: str, **more: Any) -> Run:
        return lifecycle.start(agent.graph_id, {"what": what}, by=SHOP, **more)

    def keep(self, name: str, run: Run) -> Run:
        self.runs[name] = str(run.id)
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now() + timedelta(days=1))
        return fresh(run)

    def drive(self) -> list[str]:
        """Whatever is ready, until nothing is."""
        found: list[str] = []
        while (how := self.stage.drive()) != "idle":
            found.append(how)
        return found

    def driven(self, name: str, what: str, *how: str, **more: Any) -> Run:
        run = self.start(what, **more)
        found = self.drive()
        assert found == [*(how or ("parked",))], (name, found)
        return self.keep(name, run)

    def of_key(self, key: str) -> Run:
        with transaction.atomic():
            wanted = Wanted(agent.graph_id, {"what": "signal"}, business_key=key, on_conflict="queue")
            return keys.start(wanted, by=SHOP).run


def limited(make: Later) -> None:
    """By a worker that asks for permits; it looks after everything there is, so nothing else is there yet."""
    limits.open_breaker("tool:send", by=OLGA, justification=WHY)
    run = make.start("send")
    with working(make.stage, make.stage.hire()):
        until(lambda: str(fresh(run).state) == "waiting_event")
    make.keep("limit", run)


def sharing(make: Later) -> None:
    make.driven("budget", "call", "paused", budget=Budget(tool_calls=1))
    raised = make.driven("raised budget", "call", "paused", budget=Budget(tool_calls=1, model_calls=3))
    set_budget(raised.id, Budget(tool_calls=20), by=OLGA, justification=WHY)
    make.keep("raised budget", raised)
    pools.create(
        PoolBody(name="shared", resource="tool_calls", limit=1, scope="tag", whose="shared", period="month",
                 justification=WHY), by=OLGA,
    )  # fmt: skip
    make.driven("pool", "call", tags=["shared"])


def families(make: Later) -> None:
    make.driven("child", "child", "parked", "parked")
    several = make.driven("children", "children", "parked", "parked", "completed")
    assert timers.tell_parents() == 1
    assert make.drive() in ([], ["parked"])
    make.keep("children", several)
    make.driven("child untold", "quick", "parked", "completed")
    pending = make.start("quick")
    assert make.stage.drive() == "parked"
    make.keep("child pending", pending)


def talking(make: Later) -> None:
    waits = make.start("message")
    for name in ("early", "none"):
        sending.send(waits.id, "note", {"name": name}, by=SHOP)
    assert make.drive() == ["parked"]
    make.keep("message", waits)
    asked = make.driven("message not handled", "signal")
    sending.send(asked.id, "note", {"name": "a"}, by=SHOP, sender_id="a")
    make.keep("message not handled", asked)
    make.driven("attributes", "attributes", attributes={"customer": "at its start", "score": 7})
    make.driven("conversation", "read")
    screened = lifecycle.start(guarded.graph_id, {"what": "screened"}, by=SHOP)
    assert make.drive() == ["parked"]
    make.keep("screened", screened)


def going_on(make: Later) -> None:
    renewed = make.start("renew", budget=Budget(tool_calls=50), attributes={"score": 7})
    signals.signal(renewed.id, "kept", {"a": 1}, by=SHOP)
    assert make.drive() == ["completed", "parked"]
    make.keep("renewed", renewed)
    make.driven("handed off", "handoff", "completed", "parked")


def reading(make: Later) -> None:
    make.stage.reads = cache = ReadCache(make.stage.wait(make.stage.connected()))
    for name in ("read and kept", "read from the cache"):
        make.driven(name, "peek")
        make.stage.wait(cache.settle())
    make.stage.reads = NoReads()


def starting(make: Later) -> None:
    first, second, third = (make.of_key("order 1") for _ in range(3))
    assert make.drive() == ["parked"]
    signals.signal(first.id, "go", {"a": 1}, by=SHOP)
    assert make.drive() == ["completed"]
    turns.pass_on_from([first.id])
    assert make.drive() == ["parked"]
    for name, run in {"key passed on": first, "key": second, "key queued": third}.items():
        make.keep(name, run)
    user = User.objects.create_user("olga")
    user.groups.add(Group.objects.get_or_create(name="integrator")[0])
    olga = Actor("user", "olga", role="integrator", auth="session", person=user.pk)
    body = {"name": "nightly", "agent": agent.graph_id, "input": {"what": "signal"}, "cron": "* * * * *"}
    one = schedules.create(ScheduleBody.model_validate(body | {"missed": "once", "tags": ["night"]}), by=olga)
    Schedule.objects.filter(pk=one.pk).update(next_at=now().replace(second=0, microsecond=0))
    assert starts.fire([one.id]) == 1 and make.drive() == ["parked"]
    make.keep("schedule", Run.objects.get(tags=["night"]))


def make_all(stage: Stage) -> dict[str, str]:
    for graph_id in {*registry.graph_ids()} - {each.graph_id for each in (*AGENTS, agents.agent)}:
        registry.remove(graph_id)  # a worker notes all that it has, and those of other tests are no matter of a dump's
    make = Later(stage)
    for part in (limited, sharing, families, talking, going_on, reading, starting):
        part(make)
    return make.runs
