"""Everybody around the runs of `agents_later.py`, until all of them, and those that they started or went on as, have
ended; and what must have come of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from approvals.models import Approval
from durableagents import Budget
from ledger.models import Event
from runs.journal.asked import starters
from runs.journal.cache.reads import ReadCache
from runs.models import Message, Pool, Run, Schedule, Wait
from runs.queries.attributes.shown import attributes_of
from runs.services import signals
from runs.services.budgets.raising import set_budget
from runs.services.limits import acts as limits
from runs.services.messages import sending
from runs.services.starts import turns
from runs.workers import starts, timers
from tests.runs.sharing import raised
from tests.runs.stage import Stage, now, output, waiting
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.agents_later import HALF, agent
from tests.world import OLGA, SHOP

WHY = "the test says so"
# What each waits for when the database is upgraded.
WAITS = {
    "limit": "timer", "budget": "budget", "raised budget": "", "pool": "pool", "child": "child",
    "children": "child", "child untold": "child", "child pending": "child", "message": "message",
    "message not handled": "signal", "attributes": "signal", "conversation": "approval", "screened": "signal",
    "renewed": "signal", "handed off": "signal", "read and kept": "signal", "read from the cache": "signal",
    "key passed on": "", "key": "signal", "key queued": "", "schedule": "signal",
}  # fmt: skip
SIGNAL = {"a": 1}


def _around(what: str, *more: str) -> list[str]:
    return [f"order first {what} 0", *more, f"order last {what}"]


def _helped(*whats: str) -> list[str]:
    return [f"order {help_} {what}" for what in whats for help_ in ("help", "helped")]


# Every effect of a run and of those that belong to it, each once.
WANTED = {
    "limit": _around("send", "send parcel"),
    **dict.fromkeys(("budget", "raised budget", "pool"), _around("call", "order one more")),
    "child": _around("child", *_helped("child")),
    "children": _around("children", *_helped("child", "quick")),
    **dict.fromkeys(("child untold", "child pending"), _around("quick", *_helped("quick"))),
    "message": _around("message"),
    "attributes": _around("attributes"),
    "conversation": _around("read", f"pay item {HALF}"),
    "screened": ["order clean", "order clean too"],
    "renewed": [*(f"order first renew {turn}" for turn in range(3)), "order last renew"],
    "handed off": ["order first handoff 0", *_helped("handed")],
    **dict.fromkeys(("read and kept", "read from the cache"), _around("peek", "order by rates")),
    **dict.fromkeys(("message not handled", "key passed on", "key", "key queued", "schedule"), _around("signal")),
}
# What its last one ended with: all of it, or what its state had seen.
ENDED_WITH: dict[str, Any] = {
    "limit": ["send:parcel"], "budget": ["order:one more"], "raised budget": ["order:one more"],
    "pool": ["order:one more"], "child": ["helped child"], "children": [["helped child", "helped quick"]],
    "child untold": ["helped quick"], "child pending": ["helped quick"],
    "message": ["early", "late", ["note", 3, {"ref": "noted late"}]],
    "message not handled": ["a", SIGNAL], "attributes": [SIGNAL], "conversation": ["all read"],
    "screened": ["poison", "order:clean", SIGNAL, "order:clean too"], "renewed": [SIGNAL, "nothing"],
    "handed off": {"ref": "helped handed"}, "read and kept": [["look:rates", "order:by rates", SIGNAL]],
    "read from the cache": [["look:rates", "order:by rates", SIGNAL]],
    "key passed on": [SIGNAL], "key": [SIGNAL], "key queued": [SIGNAL], "schedule": [SIGNAL],
}  # fmt: skip
MESSAGES = {"message": ["answered", "refused", "answered"], "message not handled": ["answered"]}
ATTRIBUTES = {
    "attributes": ({"customer": "ours", "stages": ["begun"], "score": 7}, {"stages": ["begun", "done"], "score": 7}),
    "renewed": ({"score": 7}, {"score": 7}),
    "child": ({"customer": "a parent's"}, {"customer": "a parent's"}),
}
# What the first dumps have no event of.
KINDS = {
    "AttributesSet", "BudgetDebited", "BudgetExceeded", "BudgetSet", "CachedReadTaken", "ChildEnded", "ChildOf",
    "ChildStarted", "ContentScreened", "ContentWithheld", "MessageHandled", "MessageReceived", "ModelRouted",
    "ModelsChosen", "RunAdmitted", "RunCarriedOn", "RunHandedOff", "RunRenewed", "SignalCarried", "StartPlanned",
    "TranscriptCompacted",
}  # fmt: skip


@dataclass(frozen=True)
class Later:
    """One run of a dump and its situation, with those that it started and those that it went on as."""

    name: str
    id: UUID

    @property
    def family(self) -> list[Run]:
        found = [Run.objects.get(pk=self.id)]
        for each in found:
            found += Run.objects.filter(Q(parent=each.pk) | Q(came_from=each.pk)).order_by("created_at", "id")
        return found

    @property
    def last(self) -> Run:
        """The one that the first went on as; itself, where it didn't."""
        return [each for each in self.family if each.parent is None][-1]

    def effects(self) -> list[str]:
        ours = {str(each.pk) for each in self.family}
        told = (f"{x.tool} {json.loads(x.body)['name'].rstrip('x ')}" for x in OUTSIDE.effects if x.run in ours)
        return sorted(told)


class Asked(Later):
    """One whose one call people are asked about first."""

    @property
    def run(self) -> Run:
        return Run.objects.get(pk=self.id)

    @property
    def question(self) -> Approval:
        return self.run.approvals.get(state="open")

    def effects(self) -> list[str]:
        ours = [each for each in OUTSIDE.effects if each.run == str(self.id)]
        return [f"{each.tool} {json.loads(each.body)['name']} {json.loads(each.body)['amount']}" for each in ours]


def remembered_later(dump: Path) -> list[Later]:
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    return [Later(name, UUID(run_id)) for name, run_id in told.get("later", {}).items()]


def there_is_all_of_then() -> None:
    assert {*Event.objects.values_list("kind", flat=True).distinct()} >= KINDS
    for run in Run.objects.filter(Q(parent__isnull=False) | Q(first__isnull=False)):
        with connection.cursor() as cursor:  # policies ask that also of what another run made, or went on as
            cursor.execute(starters.STATEMENT, [[str(run.pk)]])
            assert starters.starter_of(str(run.pk), cursor.fetchall()) == "key:shop", run.pk


def waits_as_it_should(later: Later) -> None:
    # Whoever made the dump on a slow machine swept once the breaker's time was over: then it was woken already.
    may_be_woken = [""] if later.name == "limit" else []
    assert " ".join(wait.kind for wait in waiting(later.last)) in [WAITS[later.name], *may_be_woken], later.name
    assert _attributes(later) == ATTRIBUTES.get(later.name, [_attributes(later)])[0], later.name


def ended_well(later: Later) -> None:
    assert {str(each.state) for each in later.family} == {"completed"}, later.name
    assert later.effects() == sorted(WANTED[later.name]), later.name
    told: Any = output(later.last)
    assert (told["seen"] if later.last.agent == agent.name else told) == ENDED_WITH[later.name], later.name
    answered = Message.objects.filter(run=later.id).order_by("n").values_list("outcome", flat=True)
    assert list(answered) == MESSAGES.get(later.name, []), later.name
    assert _attributes(later) == ATTRIBUTES.get(later.name, [0, _attributes(later)])[1], later.name


def _attributes(later: Later) -> Any:
    """Of the newest of the family: a child's, where it has one."""
    return attributes_of([each := later.family[-1].pk]).get(each, {})


def let_out() -> None:
    """What holds runs that nothing is said to."""
    limits.close_breaker("tool:send", by=OLGA, justification=WHY)
    raised(Pool.objects.get(), 100)


def bring_later_to_their_ends(stage: Stage, runs: list[Later]) -> None:
    """As `people.bring_to_their_ends`."""
    stage.reads = ReadCache(stage.wait(stage.connected()))
    for _ in range(20):
        drive_all(stage)
        left = [run for later in runs for run in later.family if run.ended_at is None]
        if not left:
            return
        for run in left:
            serve(stage, run)
        timers.sweep()
    raise AssertionError(f"still not ended: {[(str(run.pk), str(run.state)) for run in left]}")


def drive_all(stage: Stage) -> None:
    timers.open_gates()
    Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
    while stage.drive() != "idle" or timers.tell_parents() or turns.pass_on_from(turns.ended()):
        pass


def serve(stage: Stage, run: Run) -> None:
    """What a run waits for, given. For a pool and a child nothing is: they come by what is given to others."""
    for wait in waiting(run):
        match wait.kind:
            case "approval":
                stage.decide(run)
            case "signal":
                signals.signal(run.id, "go", SIGNAL, by=SHOP)
            case "timer":
                Wait.objects.filter(pk=wait.pk).update(deadline=now())
            case "budget":
                set_budget(run.id, Budget(tool_calls=20), by=OLGA, justification=WHY)
            case "message":
                sending.send(run.id, "note", {"name": "late"}, by=SHOP)
            case "pool" | "child":
                pass
            case _:
                raise AssertionError(f"{run.pk} waits for {wait.kind}")


def started_by_the_clock() -> Later:
    """What an old schedule starts: once, while what it started lives."""
    one = Schedule.objects.get()
    assert starts.fire([one.id]) > 0
    starts.fire([one.id])
    first, second = Run.objects.filter(tags=["night"]).order_by("created_at")
    assert first.ended_at is not None and second.ended_at is None
    return Later("schedule", second.id)
