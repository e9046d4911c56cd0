"""Everybody around the runs of `agents_granted.py`: what was allowed, shown and signed then counts in today's code for
what it counted for, and for no more; whoever was invited comes in, and whoever was being told is told once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from approvals.genuine import genuine
from approvals.grants.models import StandingEnd, StandingGrant, StandingUse
from approvals.models import Assertion, Decision, Delivery, Device, Document, Policy
from approvals.notices import addressing, courier, own, phones
from approvals.notices.bodies import PreferenceBody
from approvals.notices.sealed import opened
from approvals.stepup.checking import ProofNeeded
from durableagents.identity import invitations, links
from durableagents.signin import passkeys
from ledger import events as e
from ledger.errors import DurableAgentsError, Forbidden
from ledger.verification.runs import verify
from runs.models import NEVER, Run
from runs.services import lifecycle, signals
from runs.workers import timers
from tests.approvals import granting
from tests.approvals.post import Postbox, allow
from tests.runs.stage import Stage, events, now, output
from tests.upgrade import agents_granted as a
from tests.upgrade.agents import OUTSIDE
from tests.upgrade.cast_granted import (
    CASES,
    ENDED,
    SIGNERS,
    actor,
    push_key,
    say,
    signed,
)
from tests.upgrade.make_granted import PASSWORD
from tests.upgrade.people_later import Asked
from tests.world import SHOP

SIGNAL = {"a": 1}
DENIED = "denied by not_hers 1"
# How each ended that sent nothing.
NOTHING: dict[str, Any] = {
    "papers shown, and no": ["no by user:dora"], "denied for who started it": [DENIED],
    "a child of who is denied": [SIGNAL, DENIED],
}  # fmt: skip
CHANGED = "papers shown, changed, and not sent"


class Granted(Asked):
    """One run of a dump and its situation, with its child."""

    def effects(self) -> list[str]:
        ours = {str(each.pk) for each in self.family}
        told = [(each.tool, json.loads(each.body)) for each in OUTSIDE.effects if each.run in ours]
        return [f"{tool} {body['name']} {body['amount']}" for tool, body in told]

    def wanted(self) -> list[str]:
        """Its one effect: what was approved."""
        case = CASES[self.name]
        return [] if self.name in NOTHING else [f"{case.by} {case.name} {250 if self.name == CHANGED else case.amount}"]


Named = dict[str, Granted]


def remembered_granted(dump: Path) -> list[Granted]:
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    return [Granted(name, UUID(run_id)) for name, run_id in told.get("granted", {}).items()]


def links_of(dump: Path) -> dict[str, str]:
    """What stood in the links to accounts."""
    told = json.loads(dump.with_suffix("").with_suffix(".json").read_text())
    return {**told.get("invited", {}), **told.get("invited since", {})}


def is_as_it_was_granted(runs: list[Granted]) -> None:
    """What was allowed, signed and shown then is genuine; nothing has left that nobody agreed to."""
    assert {each.name for each in runs} == {*CASES}
    for model in (StandingGrant, StandingUse, StandingEnd, Policy, Device):
        rows: list[Any] = list(model._default_manager.all())
        assert rows and all(row.is_genuine for row in rows), model
    assert StandingUse.objects.count() == 3 and StandingEnd.objects.count() == 1
    rows = list(Decision.objects.filter(approval__run__in=[each.id for each in runs]))
    assert len(rows) > 10 and all(genuine(rows)) and any((row.standing or {}).get("grant") for row in rows)
    assert Assertion.objects.count() == 3
    assert [each.signed.problem() for each in Assertion.objects.all()] == [""] * 3
    held = {row.digest: bytes(row.content) for row in Document.objects.all()}
    assert held == {each.digest: each.bytes for each in a.PAPERS}
    assert all(len(passkeys.of_account(User.objects.get(username=name))) == 1 for name in SIGNERS)
    for each in runs:
        assert each.effects() == (each.wanted() if each.name in ENDED else []), each.name
        assert verify(each.id).problems == [], each.name


def bring_granted_to_their_ends(stage: Stage, runs: list[Granted]) -> None:
    named = {each.name: each for each in runs}
    for story in (of_grants, of_papers, of_signatures, of_starters):
        story(stage, named)
    assert [each.name for each in runs if each.run.ended_at is None] == []


def drive(stage: Stage) -> None:
    """Whatever is ready and under no halt."""
    Run.objects.filter(ready_at__lt=NEVER).update(ready_at=now())
    while stage.drive() != "idle" or timers.tell_parents():
        Run.objects.filter(ready_at__lt=NEVER).update(ready_at=now())


def _refused(act: Callable[[], Any], why: str | None = None, error: type[DurableAgentsError] = Forbidden) -> None:
    """It is refused, and neither is anything sent nor is anybody's word on record."""
    before = len(OUTSIDE.effects), Decision.objects.count()
    with pytest.raises(error, match=why):
        act()
    assert (len(OUTSIDE.effects), Decision.objects.count()) == before


def _goes_out(stage: Stage, each: Granted) -> None:
    drive(stage)
    assert each.effects() == each.wanted(), each.name


def of_grants(stage: Stage, runs: Named) -> None:
    """What was used then counts; what is left answers once more, and then people are asked. What was taken back lets
    nothing through, though its yes was there."""
    drive(stage)
    sent = runs["answered by a grant, and not sent"]
    assert sent.effects() == sent.wanted()
    (told,) = events(sent.run, e.ApprovalDecided)
    assert told.payload["standing"]["use"] == 2
    lapsed, asked = runs["answered, and taken back before it was sent"], runs["asked after it was taken back"]
    granting.swept()
    third = runs["asked while a grant stands"]
    assert Decision.objects.get(approval__run=third.id).standing["use"] == 3
    _goes_out(stage, third)
    bill = {"by": "repay", "name": "rent"}
    fourth = Granted("answered by a grant, and over", lifecycle.start(a.granted.name, bill, by=SHOP).pk)
    drive(stage)
    granting.swept()
    drive(stage)
    assert StandingUse.objects.count() == 4
    for each in (lapsed, asked, fourth):
        assert each.effects() == [], each.name
        _refused(lambda each=each: say(each.question, "dora"))
        say(each.question, "gwen")
        _goes_out(stage, each)
        assert verify(each.id).problems == [], each.name


def of_papers(stage: Stage, runs: Named) -> None:
    """The bytes of then are drawn by today's code, and a call with papers sends what was agreed to."""
    question = runs["papers shown, and open"].question
    assert [each["sha256"] for each in question.documents] == [each.digest for each in a.PAPERS]
    _refused(lambda: say(question, "gwen"))
    say(question, "dirk")
    for name in ("papers shown, and open", CHANGED):
        _goes_out(stage, runs[name])


def of_signatures(stage: Stage, runs: Named) -> None:
    """A yes that was signed then is used, and each further one is signed by its own person, for its own question."""
    _goes_out(stage, runs["signed, and not sent"])
    alone, half = runs["to be signed"], runs["signed by the first of two"]
    _refused(lambda: say(alone.question, "vera"), error=ProofNeeded)
    _refused(lambda: say(alone.question, "vera", signed=signed(half.question, "vera")), error=DurableAgentsError)
    _refused(lambda: say(half.question, "vera", signed=signed(half.question, "vera")), error=DurableAgentsError)
    drive(stage)
    assert alone.effects() == half.effects() == []
    for each in (alone, half):
        say(each.question, "viktor", signed=signed(each.question, "viktor"))
        _goes_out(stage, each)
    assert Assertion.objects.count() == 5


def of_starters(stage: Stage, runs: Named) -> None:
    """Who started it then counts now, also for what its child had not asked for yet."""
    asked, parent = runs["asked for who started it"], runs["a child of who is denied"]
    _refused(lambda: say(asked.question, "vera"))
    say(asked.question, "greta")
    _goes_out(stage, asked)
    (_, child) = parent.family
    signals.signal(child.pk, "go", SIGNAL, by=SHOP)
    _goes_out(stage, parent)


def granted_well(each: Granted) -> None:
    """How it ended, what it did to the outside, and that all of it is on record."""
    case = CASES[each.name]
    assert str(each.run.state) == "completed", each.name
    assert each.effects() == each.wanted(), each.name
    done: Any = f"{case.by}:{case.name}"
    done = [done, "user:dora", {"amount": [500, 250]}] if each.name == CHANGED else done
    assert output(each.run) == NOTHING.get(each.name, [done]), each.name
    for run in each.family:
        assert verify(run.pk).problems == [], each.name


# --- around the runs ---


def come_in(told: dict[str, str], *, is_guarded: bool) -> None:
    """Whoever was invited then, as far as rules let them: nobody by a link that was used or revoked."""
    assert User.objects.get(username="ivan").check_password(PASSWORD)
    given = {"password": "as it is chosen now", "address": "192.0.2.9"}
    for name in ("ivan", "igor"):
        with pytest.raises(links.EndedLink, match={"ivan": "used", "igor": "revoked"}[name]):
            invitations.accept(told[name], **given)
    if is_guarded:
        with pytest.raises(links.EndedLink, match="two people give roles"):
            invitations.accept(told["iris"], **given)
        assert invitations.accept(told["ines"], **given).groups.count() == 0
    else:
        user = invitations.accept(told["iris"], **given)
        assert [group.name for group in user.groups.all()] == ["integrator"]


def are_told_once(box: Postbox, settings: Any, folder: Path) -> None:
    """What was sent then isn't sent again; whoever had their quiet hours is told after them, in one mail; a device
    whose service is away keeps what it is to be told until it is taken away."""
    (folder / "push.pem").write_text(push_key())
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"push_key": folder / "push.pem", "push_contact": "mailto:agents@example.org"}
    )
    allow(settings, "127.0.0.0/8")
    sent = {row.pk: row.tries for row in Delivery.objects.filter(state="sent")}
    assert len(sent) >= 4
    quiet = Delivery.objects.filter(person=actor("greta").person, by="email", state="waiting")
    held = set(quiet.values_list("pk", flat=True))
    _carry()
    assert held and "greta@example.org" not in box.to and {*quiet.values_list("pk", flat=True)} >= held
    own.prefer(PreferenceBody(), by=actor("greta"))
    Delivery.objects.filter(state="waiting").update(due_at=now())
    _carry()
    assert box.to.count("greta@example.org") == 1 and not quiet.exists()
    assert {row.pk: row.tries for row in Delivery.objects.filter(pk__in=sent)} == sent
    device = Device.objects.get()
    assert json.loads(opened(device.address))[0] == "https://localhost:9/push/dora"
    pushed = Delivery.objects.filter(device=device)
    assert pushed.exists() and not pushed.filter(state="sent").exists() and pushed.filter(state="waiting").exists()
    phones.take_away(device.pk, by=actor("dora"))
    pushed.filter(state="waiting").update(due_at=now())
    _carry()
    assert not pushed.filter(state__in=("waiting", "sending", "sent")).exists()


def _carry() -> None:
    courier._rest.clear()
    addressing.address_all()
    for ways in (courier.BY_MAIL, courier.BY_PUSH):
        courier.carry(ways)
