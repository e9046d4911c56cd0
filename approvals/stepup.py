"""Asking whoever decides on a page to show once more who they are. Sign-in, which lies above this app, says how."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from django.http import HttpRequest, HttpResponse

from approvals.models import Approval, Assertion
from approvals.passkeys.signed import Signed, about, terms_of_yes
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, InvalidInput
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.gate.amounts import amount_in
from runs.engine.gate.proof import AMOUNT, PASSKEY, TARGET, Threshold, Wanted, wanted_in, wanted_of


@dataclass(frozen=True, slots=True)
class Answer:
    """`page` is what whoever showed something wrong is answered; without it the form goes on, with what a passkey
    signed for it, if one did."""

    page: HttpResponse | None = None
    signed: Signed | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """`ask` gives the page that asks, in which what somebody sent is kept; None where they have nothing that would do.
    `answer` looks at a form that came back from there. The text ends the sentence "Show once more who you are, to …";
    the terms are what a passkey would sign (passkeys/signed.py)."""

    ask: Callable[[HttpRequest, str, Wanted, dict[str, Any]], HttpResponse | None]
    answer: Callable[[HttpRequest, str, dict[str, Any]], Answer]


askers: list[Asker] = []


def ask(request: HttpRequest, what: str, wanted: Wanted, terms: dict[str, Any]) -> HttpResponse | None:
    """The page that asks; None where nothing that its reader has would do."""
    return askers[0].ask(request, what, wanted, terms) if askers else None


def answer(request: HttpRequest, what: str, terms: dict[str, Any]) -> Answer:
    """The page again where what was shown with a form is not right; otherwise the form goes on without it."""
    return askers[0].answer(request, what, terms) if askers else Answer()


class ProofNeeded(DurableAgentsError):
    """Who says yes has not shown lately, or not by enough, who they are. Nothing is done; it may be sent again."""

    status, code, title = 403, "proof-needed", "Show once more who you are"

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        what = "their second factor" if wanted.factor else "their password or second factor"
        super().__init__(
            f"This needs somebody who has shown {what} within the last {minutes(wanted.within)}. "
            "Decide it on its page, which asks for it.",
            within_seconds=wanted.within,
            second_factor=wanted.factor,
        )


class KeyCannotProve(DurableAgentsError):
    status, code, title = 403, "key-cannot-prove", "An API key can't show who uses it"

    def __init__(self, wanted: Wanted) -> None:
        what = "a second factor" if wanted.factor else "a password or a second factor"
        super().__init__(
            f"A yes to this needs {what}, shown within the last {minutes(wanted.within)}, which no API key can show, "
            "a passkey neither: decide it in the console. A key may reject it.",
            within_seconds=wanted.within,
            second_factor=wanted.factor,
        )


class SignedForElse(DurableAgentsError):
    """What a passkey signed is no word on this."""

    status, code, title = 403, "passkey-for-else", "The passkey signed something else"

    def __init__(self, why: str) -> None:
        super().__init__(f"What your passkey signed does not count for this: {why}. Nothing is decided; try again.")


class NothingToShow(DurableAgentsError):
    """They have no second factor, or neither that nor a password."""

    status, code, title = 403, "nothing-to-show", "You have nothing to show who you are with"

    def __init__(self, wanted: Wanted) -> None:
        what = "a second factor" if wanted.factor else "a password or a second factor of this installation"
        super().__init__(
            f"A yes to this needs {what}, and you have none. Set up a second factor on the page of your account, and "
            "decide it then. What you wrote is kept."
        )


def minutes(seconds: int) -> str:
    """A time in words."""
    count = max(1, seconds // 60)
    return f"{count} minute{'' if count == 1 else 's'}"


def wanted_for(approval: Approval, agent: str, thresholds: Iterable[Threshold]) -> Wanted:
    """What a yes to a question of this agent's has to show now, where its queues have these thresholds by now. Raises
    DefinitionError for a plan that can't be read."""
    return wanted_by(approval.planned(), agent, approval.tool, thresholds)


def wanted_by(plan: Any, agent: str, tool: str, thresholds: Iterable[Threshold]) -> Wanted:
    """The same of a plan that was read already. Raises DefinitionError for what is none."""
    if not isinstance(plan, dict):
        raise DefinitionError("the plan can't be read")
    asked = wanted_in(plan)
    for each in thresholds:
        asked = asked.joined(wanted_of(plan, each.asked_of(amount_in(plan), _risk(agent, tool))))
    return asked


def _risk(agent: str, tool: str) -> str:
    """As the tool's author has it; unknown where this process doesn't know the agent."""
    try:
        return next((each.risk for each in registry.find(agent).all_tools() if each.name == tool), "")
    except DurableAgentsError:
        return ""


def shown(
    wanted: Wanted, typed: Mapping[str, str], *, by: Actor, now: datetime, signed: Signed | None = None
) -> dict[str, Any] | None:
    """What somebody showed, for the record; None where no more than a yes is wanted. `signed` is what their passkey
    signed for this yes, if one did: that one was used to sign in is no word on it. Raises InvalidInput for what was not
    typed, ProofNeeded, KeyCannotProve."""
    told: dict[str, Any] = {}
    if wanted.typed:
        if missing := wanted.not_typed(typed):
            raise _not_typed(wanted, missing)
        told["typed"] = {name: typed[name] for name in wanted.typed}
    if wanted.within:
        if by.kind != "user":
            raise KeyCannotProve(wanted)
        told |= _by_passkey(wanted, signed, now) if signed is not None else _by_session(wanted, by, now)
    return told or None


def _by_session(wanted: Wanted, by: Actor, now: datetime) -> dict[str, Any]:
    age = -1 if by.proved_at is None else ceil((now - by.proved_at).total_seconds())
    if by.proved_at is None or by.proved_by == PASSKEY or wanted.not_fresh(age, by.proved_by):
        raise ProofNeeded(wanted)
    return {"by": by.proved_by, "at": by.proved_at.isoformat(), "age": age}


def _by_passkey(wanted: Wanted, signed: Signed, now: datetime) -> dict[str, Any]:
    """Counted from when the challenge was given: it was signed after that."""
    at = datetime.fromisoformat(signed.terms["at"])
    age = ceil((now - at).total_seconds())
    if wanted.not_fresh(age, PASSKEY):
        raise ProofNeeded(wanted)
    return {"by": PASSKEY, "at": at.isoformat(), "age": age, "assertion": signed.digest}


def check_signed(signed: Signed, approval: Approval, verdict: str, by: Actor) -> None:
    """Raises SignedForElse for what a passkey signed for something else than this, or what does not hold."""
    right = terms_of_yes(approval.id, approval.revision, approval.plan_hash, verdict, by.person)
    if by.kind != "user" or by.person is None or about(signed.terms) != right:
        raise SignedForElse("it was signed for something else than what is being decided")
    # Whoever decides this holds the question's lock, so nobody else keeps it between the look and the row.
    if Assertion.objects.filter(challenge=signed.challenge).exists():
        raise SignedForElse("it was used already")
    if problem := signed.problem():
        raise SignedForElse(problem)


def _not_typed(wanted: Wanted, missing: list[str]) -> InvalidInput:
    what = {AMOUNT: "the amount", TARGET: "whom or what it is about"}
    return InvalidInput(
        f"Type {' and '.join(what[name] for name in missing)} as the question has it: nothing is decided before.",
        errors=[
            {"field": f"typed_{name}", "problem": "is not what is being decided", "fix": f"type: {wanted.typed[name]}"}
            for name in missing
        ],
    )
