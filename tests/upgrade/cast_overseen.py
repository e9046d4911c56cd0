"""Whom the runs of `agents_overseen.py` ask, what each of them is about, and how people say what they have to say: for
those who leave them in a dump, and for those who go on with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from aiosmtpd.controller import Controller
from django.contrib.auth.models import User

from approvals.cases.amending import Amended, amend
from approvals.models import Approval
from approvals.notices import addressing, courier
from approvals.queues.who import roles_of
from approvals.services import decide, deciding
from ledger.actors import Actor
from ledger.clock import database_now
from tests.approvals.post import Postbox, use_mail
from tests.conftest import free_ports
from tests.upgrade import agents_overseen as a

WHY = "as it was then"
LAW, MONEY, BOARD, GONE, REST = (f"approver_{name}" for name in ("law", "cash", "board", "gone", "rest"))
# Of each queue whoever decides there.
QUEUES = {
    a.LAW: LAW, a.MONEY: MONEY, a.BOARD: BOARD, a.PROOF: MONEY, a.TIMED: MONEY, a.LATE: MONEY, a.EVER: MONEY,
    a.DESERTED: GONE, a.REST: REST,
}  # fmt: skip
# Those of whom each may say yes somewhere, and two who may not: a deputy, and somebody who is to become one of the law.
PEOPLE = {
    "lara": [LAW], "lou": [LAW, MONEY], "leon": [LAW], "mia": [MONEY], "max": [MONEY], "bea": [BOARD], "gus": [GONE],
    "hal": [REST], "ida": ["operator"], "nils": ["operator"],
}  # fmt: skip
TOLD = ("lara", "bert")  # by mail


@dataclass(frozen=True)
class Case:
    """What a run is started to do."""

    by: str
    amount: int = 5000
    waits: str = ""


# In the middle of it when the database is upgraded.
OPEN = {
    "asked by a policy": Case("buy"),
    "a rule waits for a second person": Case("forward", waits="before"),
    "one of two at stage one": Case("agree"), "one of two at stage two": Case("agree"),
    "wants a proof": Case("prove"),
    "by a calendar": Case("plan"), "went further": Case("climb"), "reminds without end": Case("stay"),
    "went further at once": Case("leave"), "a deputy's": Case("stand_in"),
    "changed, and open": Case("correct"), "changed, and not sent": Case("correct"),
    "changed, and its worker gone": Case("correct"), "changed, and sent": Case("correct", waits="after"),
}  # fmt: skip
HALTED = ("halted, and asked", "halted, and said yes to", "halted before it began", "kept by a stage of a lift")
ENDED = {
    "a policy's, said yes to": Case("buy"), "let pass": Case("buy", 500), "denied by a policy": Case("buy", 200_000),
    "all said yes": Case("agree"), "one said no at stage two": Case("agree"), "one let it fail": Case("agree"),
    "proved": Case("prove"), "below the threshold": Case("prove", 100),
    "in time": Case("plan"), "decided where it went": Case("climb"), "nobody answered": Case("lapse"),
    "said yes to after a reminder": Case("stay"), "said by a deputy": Case("stand_in"),
    "changed, and over": Case("correct"), "halted, and lifted": Case("stop"),
    "let through by a stage of a lift": Case("stop"),
}  # fmt: skip
CASES = OPEN | dict.fromkeys(HALTED, Case("stop")) | ENDED


def actor(name: str) -> Actor:
    """Somebody, signed in."""
    return Actor("user", name, auth="session", address="192.0.2.7", person=User.objects.get(username=name).pk)


def _as_decider(approval: Approval, name: str) -> Actor:
    return deciding(approval, actor(name), roles_of(User.objects.get(username=name)))


def proved(by: Actor, with_: str = "totp") -> Actor:
    """Having shown who they are a moment ago."""
    return replace(by, proved_at=database_now() - timedelta(seconds=5), proved_by=with_)


def say(approval: Approval, name: str, verdict: str = "approve", *, shown: str = "", **more: Any) -> Approval:
    """Decide it, as pages and API do; `shown` is by what they have just shown who they are."""
    by = _as_decider(approval, name)
    by = proved(by, shown) if shown else by
    return decide(approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification=WHY, by=by, **more)


def change(approval: Approval, name: str, amount: int) -> Amended:
    by = _as_decider(approval, name)
    given = {"plan_hash": approval.plan_hash, "arguments": {"amount": amount}, "justification": WHY}
    return amend(approval.id, **given, by=by)


@contextmanager
def post_office(settings: Any) -> Iterator[Postbox]:
    """A mail server, and an installation that uses it."""
    box, (port,) = Postbox(), free_ports(1)
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    use_mail(settings, port)
    courier._rest.clear()
    try:
        yield box
    finally:
        controller.stop()
        courier._rest.clear()


def deliver() -> None:
    """All mail that is due now, as a worker sends it."""
    addressing.address_all()
    courier.carry(courier.BY_MAIL)
