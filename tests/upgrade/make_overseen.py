"""The fifth part of a dump: runs of `agents_overseen.py`, in the situations that only code knows which has policies,
several people, proofs, halts, four eyes on the rules, notices, deadlines and changed calls. Made by `make.py` where the
code at hand is of then; last, for what a policy or a halt says holds for every run that comes after it."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User

from approvals.deadlines import away
from approvals.deadlines.bodies import AbsenceBody
from approvals.models import Approval
from approvals.notices import channels, own
from approvals.notices.bodies import ChannelBody, PreferenceBody
from approvals.policies import acts as policies
from approvals.policies.bodies import NewPolicyBody, PolicyBody
from approvals.queues import acts as queues
from approvals.queues.bodies import ProofBody, QueueBody
from durableagents.identity import rights
from ledger.errors import Proposed
from ledger.four_eyes import changes, guards
from ledger.four_eyes.guards import GuardsBody
from ledger.models import RuleChange
from runs.journal import wait_hooks
from runs.models import NEVER, Run
from runs.services import lifecycle
from tests.approvals.post import allow
from tests.approvals.setup import limited
from tests.approvals.timing import calendar, sweep, timing
from tests.halts.halting import everybody_goes_on, halt, lift, stage_of
from tests.runs.stage import Stage, fresh, now
from tests.upgrade import agents_overseen as a
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.cast_overseen import (
    CASES,
    HALTED,
    PEOPLE,
    QUEUES,
    TOLD,
    WHY,
    actor,
    change,
    deliver,
    post_office,
    say,
)
from tests.world import SHOP, Killed


class Overseeing:
    """Leaves one run per situation. What is ready is put off, as `make.Maker` does; what a halt put aside is not."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, str] = {}

    def start(self, name: str, *, tags: tuple[str, ...] = (), agent: Any = a.overseen) -> Run:
        case = CASES.get(name, CASES[HALTED[0]])
        bill = {"by": case.by, "name": name, "amount": case.amount, "waits": case.waits}
        return lifecycle.start(agent.name, bill, by=SHOP, tags=list(tags))

    def asked(self, name: str, **more: Any) -> Approval:
        """It asks, and nobody has said anything."""
        run = self.start(name, **more)
        self.drive()
        self.keep(name, run)
        return self.question(name)

    def drive(self) -> None:
        while self.stage.drive() != "idle":
            pass

    def keep(self, name: str, run: Run) -> None:
        self.runs[name] = str(run.id)
        Run.objects.filter(ready_at__lt=NEVER).update(ready_at=now() + timedelta(days=1))

    def question(self, name: str) -> Approval:
        return Approval.objects.get(run=self.runs[name], state="open")

    def goes_on(self, name: str) -> Run:
        """What it was woken for."""
        run = Run.objects.get(pk=self.runs[name])
        Run.objects.filter(pk=run.pk, ready_at__lt=NEVER).update(ready_at=now())
        self.drive()
        self.keep(name, run)
        return fresh(run)

    def ends(self, name: str, how: str = "completed") -> None:
        found = str(self.goes_on(name).state)
        assert found == how, (name, found)


def _people() -> None:
    for role in {role for roles in PEOPLE.values() for role in roles}:
        Group.objects.get_or_create(name=role)
    for name, roles in PEOPLE.items():
        user = User.objects.create_user(name, email=f"{name}@example.org" if name in TOLD else "")
        user.groups.set(Group.objects.filter(name__in=roles))
    for name in ("anna", "bert"):
        User.objects.create_superuser(name, f"{name}@example.org" if name in TOLD else "")


def _rules(by: Any) -> None:
    """What queues, calendars and policies say, from before anybody was asked."""
    for name, role in QUEUES.items():
        queues.create(QueueBody(name=name, title=name, role=role, justification=WHY), by=by)
    limited(by, "3000", person="mia", queue=a.MONEY)
    said = {"minutes": 5, "second_factor": True, "type_amount": True, "above": Decimal(2000)}
    queues.prove(a.PROOF, ProofBody(justification=WHY, **said), by=by)
    calendar(by, "office", holidays=[{"day": "2030-01-01", "name": "New Year"}])
    timing(by, a.TIMED, calendar="office", remind=[50])
    timing(by, a.LATE, calendar="office", on_timeout="escalate", steps=[{"to": a.BOARD, "hours": 4}])
    timing(by, a.EVER, on_timeout="remind", every_hours=1)
    timing(by, a.DESERTED, on_timeout="escalate", steps=[{"to": a.BOARD, "hours": 4}], at_once_if_away=True)
    _policy("buys", "require", by, queue=a.LAW, condition="args.amount >= 1000")
    _policy("never", "deny", by, condition="args.amount >= 100000")
    _policy("small", "allow", by, condition="args.amount < 1000")
    _policy("retired", "deny", by, tool="forward")
    policies.retire("retired", by=by, justification=WHY)
    wait_hooks.queues.forget()


def _policy(name: str, effect: str, by: Any, **more: Any) -> Any:
    said = {"tool": "buy", "rule": f"the rule of {name}", "justification": WHY} | more
    return policies.create(NewPolicyBody.model_validate({"name": name, "effect": effect, **said}), by=by)


def _away() -> None:
    until = now() + timedelta(days=5)
    away.leave(AbsenceBody(ends_at=until, justification=WHY), by=actor("gus"))
    away.leave(AbsenceBody(ends_at=until, deputy="ida", justification=WHY), by=actor("hal"))
    back = away.leave(AbsenceBody(ends_at=until, justification=WHY), by=actor("mia"))
    away.come_back(back.pk, by=actor("mia"), justification=WHY)


def asking(make: Overseeing) -> None:
    """By policies, of several, with a proof."""
    for name in ("let pass", "denied by a policy", "below the threshold"):
        run = make.start(name)
        make.drive()
        make.keep(name, run)
    say(make.question("below the threshold"), "max")
    make.ends("below the threshold")
    say(make.asked("a policy's, said yes to"), "lara")
    make.ends("a policy's, said yes to")
    make.asked("asked by a policy")
    for name in ("one of two at stage two", "all said yes", "one said no at stage two"):
        say(make.asked(name), "lou")
        say(make.question(name), "leon")
        make.goes_on(name)
        say(make.question(name), "mia", "approve" if name != "one said no at stage two" else "reject")
    say(make.question("all said yes"), "max")
    say(make.asked("one let it fail"), "lara", "abstain")
    say(make.question("one let it fail"), "lou", "fail")
    for name, how in (("all said yes", ""), ("one said no at stage two", ""), ("one let it fail", "failed")):
        make.ends(name, how or "completed")
    say(make.asked("one of two at stage one"), "lara")
    say(make.asked("proved"), "max", shown="totp", typed={"amount": "5,000"})
    make.ends("proved")
    make.asked("wants a proof")


def waiting(make: Overseeing) -> None:
    """What time brings."""
    say(make.asked("in time"), "mia")
    make.ends("in time")
    make.asked("by a calendar")
    for name in ("decided where it went", "went further", "said yes to after a reminder", "reminds without end"):
        make.asked(name)
    for name in ("nobody answered", "went further at once"):
        make.asked(name)
    for _ in range(20):  # a slow machine's sweep may leave some for the next one
        sweep()
        if not Approval.objects.filter(run=make.runs["nobody answered"], state="open").exists():
            break
    say(make.question("decided where it went"), "bea")
    say(make.question("said yes to after a reminder"), "max")
    for name in ("decided where it went", "said yes to after a reminder", "nobody answered"):
        make.ends(name)
    say(make.asked("said by a deputy"), "ida")
    make.ends("said by a deputy")
    make.asked("a deputy's")


def changing(make: Overseeing) -> None:
    """Approved with changes: within the editor's limit, and above it."""
    assert change(make.asked("changed, and open"), "mia", 4000).approval.state == "open"
    for name in ("changed, and over", "changed, and sent", "changed, and not sent", "changed, and its worker gone"):
        assert change(make.asked(name), "mia", 2500).approval.state == "approved"
        make.keep(name, Run.objects.get(pk=make.runs[name]))
    make.ends("changed, and over")
    make.ends("changed, and sent", "waiting_event")
    OUTSIDE.trouble["correct"] = ("after", Killed())
    gone = Run.objects.filter(pk=make.runs["changed, and its worker gone"])
    gone.update(ready_at=now())
    assert make.stage.drive(make.stage.hire(is_dead=True)) == "killed"


def halting(make: Overseeing) -> None:
    """One that is over, one that holds, and one that is lifted for some."""
    over = halt("tag", "upgrade-over")
    run = make.start("halted, and lifted", tags=("upgrade-over",), agent=a.halted)
    make.drive()
    lift(over)
    everybody_goes_on()
    make.drive()
    make.keep("halted, and lifted", run)
    say(make.question("halted, and lifted"), "leon")
    make.ends("halted, and lifted")
    asked, agreed, new, kept = HALTED
    for name in (asked, agreed):
        make.asked(name, agent=a.halted)
    halt("agent", a.halted.name)
    say(make.question(agreed), "leon")
    make.goes_on(agreed)
    make.keep(new, make.start(new, agent=a.halted))
    make.goes_on(new)
    assert not any(x.run in (make.runs[agreed], make.runs[new]) for x in OUTSIDE.effects)
    some = halt("tag", "upgrade-some")
    first = "let through by a stage of a lift"
    both = [(first, ("upgrade-some", "upgrade-first")), (kept, ("upgrade-some",))]
    for name, tags in both:
        make.keep(name, make.start(name, tags=tags))
        make.goes_on(name)
    assert Run.objects.filter(ready_at=NEVER).count() == 2
    stage_of(some, tags=["upgrade-first"])
    everybody_goes_on()
    make.goes_on(first)
    say(make.question(first), "leon")
    make.ends(first)
    halt("agent", a.halted.name, kind="starts", refuse=True)


def ruling(make: Overseeing) -> None:
    """Rules under four eyes: one change of each end, and two that wait for a second person."""
    anna, bert = actor("anna"), actor("bert")
    guards.require(GuardsBody(families=["policies", "roles"], justification=WHY), by=anna)
    body = PolicyBody.model_validate(
        {"tool": "buy", "effect": "require", "queue": a.LAW, "condition": "args.amount > 1000", "rule": "above that",
         "justification": WHY}
    )  # fmt: skip
    for end in (changes.apply, changes.refuse):
        with suppress(Proposed):
            policies.change("buys", body, by=anna)
        end(RuleChange.objects.get(state="open").pk, by=bert, justification=WHY)
        body = body.model_copy(update={"condition": "args.amount > 2000"})
    with suppress(Proposed):
        policies.retire("small", by=anna, justification=WHY)
    changes.withdraw(RuleChange.objects.get(state="open").pk, by=anna, justification=WHY)
    waits = make.start("a rule waits for a second person")
    make.drive()
    make.keep("a rule waits for a second person", waits)
    with suppress(Proposed):
        _policy("forwards", "require", anna, tool="forward", queue=a.LAW)
    nils = User.objects.get(username="nils")
    with suppress(Proposed):
        rights.set_roles(nils.pk, ["approver_law", "operator"], False, by=anna, justification=WHY)
    assert RuleChange.objects.filter(state="open").count() == 2


def telling(by: Any) -> None:
    """A shared mailbox, a chat whose address is sealed, and how somebody wants to be told."""
    mailbox = {"name": "law", "queue": a.LAW, "form": "mailbox", "address": "law@example.org"}
    chat = {"name": "chat", "queue": a.BOARD, "form": "webhook", "address": "http://127.0.0.1:9/services/T0/secret"}
    for each in (mailbox, chat):
        channels.add(ChannelBody.model_validate({**each, "kinds": ["opened"], "justification": WHY}), by=by)
    wish = {"ways": {"opened": ["email"]}, "quiet_from": "22:00", "quiet_until": "06:00", "zone": "Europe/Berlin"}
    own.prefer(PreferenceBody.model_validate(wish), by=actor("bea"))


def make_all(stage: Stage, settings: Any) -> dict[str, Any]:
    make = Overseeing(stage)
    _people()
    _rules(actor("anna"))
    _away()
    allow(settings, "127.0.0.0/8")
    telling(actor("anna"))
    with post_office(settings) as box:
        for part in (asking, waiting, changing):
            part(make)
        deliver()
        told = sorted({*box.to})
    for part in (halting, ruling):
        part(make)
    assert {*make.runs} == {*CASES} and not OUTSIDE.trouble
    return {"overseen": make.runs, "told": told}
