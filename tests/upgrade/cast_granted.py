"""Whom the runs of `agents_granted.py` ask, what each of them is about, and how people say what they have to say: for
those who leave them in a dump, and for those who go on with them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.contrib.auth.models import User

from approvals.models import Approval
from approvals.passkeys.signed import Signed, terms_of_yes
from approvals.queues.who import roles_of
from approvals.services import decide, deciding
from durableagents.signin import passkeys, webauthn
from ledger.actors import Actor
from tests.signin.authenticator import Device
from tests.upgrade import agents_granted as a

WHY = "as it was then"
# Of each queue whoever decides there.
QUEUES = {
    a.AGAIN: "approver_again", a.SHOWN: "approver_shown", a.VOUCHED: "approver_vouched", a.STRANGERS: "approver_again",
}  # fmt: skip
PEOPLE = {
    "greta": ["approver_again"], "gwen": ["approver_again"], "dora": ["approver_shown"], "dirk": ["approver_shown"],
    "vera": ["approver_vouched"], "viktor": ["approver_vouched"], "nina": ["integrator"],
}  # fmt: skip
# Who have a passkey each.
SIGNERS = ("vera", "viktor")


@dataclass(frozen=True)
class Case:
    """What a run is started to do, and by whom where that isn't the shop."""

    by: str
    name: str
    amount: int = 500
    waits: bool = False
    child: bool = False
    who: str = ""


# In the middle of it when the database is upgraded.
OPEN = {
    "answered by a grant, and not sent": Case("repay", "rent"),
    "asked while a grant stands": Case("repay", "rent"),
    "answered, and taken back before it was sent": Case("repay", "water"),
    "asked after it was taken back": Case("repay", "water"),
    "papers shown, and open": Case("sign", "open"), "papers shown, changed, and not sent": Case("sign", "changed"),
    "signed, and not sent": Case("vouch", "unsent"), "to be signed": Case("vouch", "unsigned"),
    "signed by the first of two": Case("vouch_by_two", "half"),
    "asked for who started it": Case("spend", "asked"),
    "a child of who is denied": Case("spend", "child", child=True, waits=True, who="nina"),
}  # fmt: skip
ENDED = {
    "allowed again": Case("repay", "rent"), "answered by a grant, and over": Case("repay", "rent"),
    "allowed until it was taken back": Case("repay", "water"),
    "papers shown, and over": Case("sign", "over"), "papers shown, and no": Case("sign", "no"),
    "signed, and over": Case("vouch", "over"),
    "denied for who started it": Case("spend", "denied", who="nina"),
    "let be for who started it": Case("spend", "let be", who="greta"),
    "a child that was let be": Case("spend", "let be", child=True, who="nina"),
}  # fmt: skip
CASES = OPEN | ENDED


def actor(name: str) -> Actor:
    """Somebody, signed in."""
    return Actor("user", name, auth="session", address="192.0.2.7", person=User.objects.get(username=name).pk)


def as_decider(approval: Approval, name: str) -> Actor:
    return deciding(approval, actor(name), roles_of(User.objects.get(username=name)))


def say(approval: Approval, name: str, verdict: str = "approve", *, signed: Signed | None = None) -> Approval:
    """Decide it, as pages and API do."""
    given: dict[str, Any] = {"plan_hash": approval.plan_hash, "justification": WHY, "signed": signed}
    return decide(approval.id, verdict=verdict, by=as_decider(approval, name), **given)


def private(name: str) -> ec.EllipticCurvePrivateKey:
    """A key of a story's own, the same whenever it is asked for."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest(), "big") % 2**255 + 1
    return ec.derive_private_key(number, ec.SECP256R1())


def phone(name: str) -> Device:
    """Somebody's device with their passkey."""
    where, user = webauthn.site(), User.objects.get(username=name)
    credential = hashlib.sha256(f"credential of {name}".encode()).digest()
    handle = "" if not (known := passkeys.of_account(user)) else passkeys.to_make(user)[1]["user"]["id"]
    assert len(known) <= 1
    return Device(where.origin, where.rp_id, key=private(name), credential=credential, handle=handle)


def set_up(name: str) -> list[str]:
    """Their passkey, as their page does it; the recovery codes."""
    user, device = User.objects.get(username=name), phone(name)
    challenge, options = passkeys.to_make(user)
    shown = passkeys.shown(challenge, options)
    return passkeys.set_up(
        user, shown["token"], device.make(json.loads(shown["options"])), f"{name}'s phone", by=actor(name)
    )


def signed(approval: Approval, name: str) -> Signed:
    """What somebody's passkey signs for a yes to this question."""
    user = User.objects.get(username=name)
    terms = terms_of_yes(approval.id, approval.revision, approval.plan_hash, "approve", user.pk)
    shown = passkeys.shown(*passkeys.to_use(terms, user))
    return passkeys.check(user, shown["token"], phone(name).sign(json.loads(shown["options"])), terms)


def push_key() -> str:
    """The installation's own, by which push services know it."""
    return private("push").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
