"""The seventh part of a dump: runs of `agents_granted.py`, in the situations that only code knows which has standing
grants, documents in a case, passkeys beside a decision, and policies on who started a run; and accounts, devices and
messages under way. Made by `make.py` where the code at hand is of then."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group, User

from approvals.cases.amending import amend
from approvals.granting.acts import take_back
from approvals.grants.models import StandingGrant
from approvals.models import Approval
from approvals.notices import addressing, courier, own, phones
from approvals.notices.bodies import DeviceBody, PreferenceBody
from approvals.policies import acts as policies
from approvals.policies.bodies import NewPolicyBody
from approvals.queues import acts as queues
from approvals.queues.bodies import ProofBody, QueueBody
from durableagents.identity import invitations
from runs.journal import wait_hooks
from runs.models import Run
from runs.services import lifecycle
from runs.workers import timers
from tests.approvals import granting
from tests.approvals.post import allow
from tests.approvals.push_service import Browser
from tests.runs.stage import Stage, fresh, now
from tests.upgrade import agents_granted as a
from tests.upgrade.cast_granted import (
    CASES,
    PEOPLE,
    QUEUES,
    SIGNERS,
    WHY,
    actor,
    as_decider,
    private,
    push_key,
    say,
    set_up,
    signed,
)
from tests.upgrade.cast_overseen import post_office
from tests.world import SHOP

PASSWORD = "as it was chosen then"


class Granting:
    """Leaves one run per situation. What is ready is put off, as `make.Maker` does."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, str] = {}

    def driven(self, name: str) -> Run:
        case = CASES[name]
        bill = {"by": case.by, "name": case.name, "amount": case.amount, "waits": case.waits, "child": case.child}
        run = lifecycle.start(a.granted.name, bill, by=actor(case.who) if case.who else SHOP)
        self.drive()
        return self.keep(name, run)

    def drive(self) -> None:
        while self.stage.drive() != "idle" or timers.tell_parents():
            pass

    def keep(self, name: str, run: Run) -> Run:
        self.runs[name] = str(run.id)
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now() + timedelta(days=1))
        return fresh(run)

    def asked(self, name: str) -> Approval:
        return Approval.objects.get(run=self.driven(name), state="open")

    def ends(self, name: str) -> None:
        run = Run.objects.get(pk=self.runs[name])
        Run.objects.filter(pk=run.pk).update(ready_at=now())
        self.drive()
        assert str(self.keep(name, run).state) == "completed", name


def _set_up(head: Any) -> None:
    for name, roles in PEOPLE.items():
        user = User.objects.create_user(name, email=f"{name}@example.org")
        user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
    for name, role in QUEUES.items():
        queues.create(QueueBody(name=name, title=name, role=role, justification=WHY), by=head)
    granting.allowed(head, queue=a.AGAIN)
    queues.prove(a.VOUCHED, ProofBody(minutes=5, second_factor=True, justification=WHY), by=head)
    for name, effect, condition, queue in (
        ("strangers", "require", "requester = key:shop", a.STRANGERS),
        ("not_hers", "deny", "requester = user:nina", ""),
    ):  # fmt: skip
        said = {"name": name, "effect": effect, "tool": "spend", "condition": condition, "queue": queue}
        policies.create(NewPolicyBody.model_validate({**said, "rule": name, "justification": WHY}), by=head)
    for name in SIGNERS:
        assert len(set_up(name)) == 10
    wait_hooks.queues.forget()


def granting_again(make: Granting) -> None:
    """One grant of which two of three are used, and one that was taken back."""
    for first, times in (("allowed again", 3), ("allowed until it was taken back", 5)):
        case = make.asked(first)
        granting.given(case, as_decider(case, "greta"), times=times)
        make.ends(first)
    for name in (
        "answered by a grant, and over", "answered by a grant, and not sent",
        "answered, and taken back before it was sent",
    ):  # fmt: skip
        case = make.asked(name)
        granting.swept()
        assert granting.state(case.run) == "approved", name
        make.keep(name, case.run)
    make.ends("answered by a grant, and over")
    (water,) = StandingGrant.objects.filter(approval__run=make.runs["allowed until it was taken back"])
    take_back(water.pk, by=actor("greta"), roles=frozenset(PEOPLE["greta"]), justification=WHY)
    make.asked("asked after it was taken back")


def showing(make: Granting) -> None:
    """Papers in a case, and what became of it."""
    say(make.asked("papers shown, and over"), "dora")
    say(make.asked("papers shown, and no"), "dora", "reject")
    for name in ("papers shown, and over", "papers shown, and no"):
        make.ends(name)
    make.asked("papers shown, and open")
    case = make.asked("papers shown, changed, and not sent")
    said = {"plan_hash": case.plan_hash, "arguments": {"amount": 250}, "justification": WHY}
    assert amend(case.id, **said, by=as_decider(case, "dora")).approval.state == "approved"
    make.keep("papers shown, changed, and not sent", case.run)


def signing(make: Granting) -> None:
    for name in ("signed, and over", "signed, and not sent", "signed by the first of two"):
        case = make.asked(name)
        say(case, "vera", signed=signed(case, "vera"))
        make.keep(name, case.run)
    make.ends("signed, and over")
    make.asked("to be signed")


def starting(make: Granting) -> None:
    """By whom a rule asks, by whom it refuses, and what came of what they started."""
    make.asked("asked for who started it")
    for name in ("denied for who started it", "let be for who started it", "a child that was let be"):
        assert str(make.driven(name).state) == "completed", name
    make.driven("a child of who is denied")


def inviting(head: Any) -> dict[str, Any]:
    """Links to accounts: of one that is there by now, one that is open, and one that was revoked."""
    links: dict[str, str] = {}
    for name in ("ivan", "iris", "igor"):
        roles = ["integrator"]
        said = {"name": name, "email": f"{name}@example.org", "is_admin": False, "days": 30}
        row, link = invitations.invite(**said, roles=roles, by=head, justification=WHY)
        links[name] = link.rsplit("/", 1)[1]
        if name == "igor":
            invitations.revoke(row.pk, by=head, justification=WHY)
    invitations.accept(links["ivan"], password=PASSWORD, address="192.0.2.9")
    return {"invited": links}


def telling(make: Granting, settings: Any, folder: Path) -> None:
    """A device whose push service is away, and somebody in their quiet hours."""
    (folder / "push.pem").write_text(push_key())
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"push_key": folder / "push.pem", "push_contact": "mailto:agents@example.org"}
    )
    allow(settings, "127.0.0.0/8")
    phone = Browser("https://localhost:9/push/dora", key=private("dora's phone"), auth=bytes(16))
    phones.subscribe(DeviceBody(**phone.body), "Chrome on Android", by=actor("dora"))
    hours = [f"{now() + timedelta(hours=n):%H:%M}" for n in (-1, 6)]
    own.prefer(PreferenceBody(quiet_from=hours[0], quiet_until=hours[1]), by=actor("greta"))
    with post_office(settings) as box:
        addressing.address_all()
        for ways in (courier.BY_MAIL, courier.BY_PUSH):
            courier.carry(ways)
        assert {*box.to} >= {"gwen@example.org", "vera@example.org"} and "greta@example.org" not in box.to


def make_all(stage: Stage, settings: Any, folder: Path) -> dict[str, Any]:
    make = Granting(stage)
    User.objects.create_superuser("head", "head@example.org")
    head = actor("head")
    _set_up(head)
    for part in (granting_again, showing, signing, starting):
        part(make)
    telling(make, settings, folder)
    return {"granted": make.runs, **inviting(head)}


def ask_the_last(stage: Stage) -> dict[str, str]:
    """What a grant is to answer: when nobody sweeps any more."""
    make = Granting(stage)
    make.asked("asked while a grant stands")
    return make.runs
