"""Proof with an approval: what is typed, and signing in again, which sign-in above this app implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from django.http import HttpRequest, HttpResponse

from approvals.guards import DecisionGuard, PendingDecision
from approvals.models import Approval, Assertion, Decision
from approvals.passkeys.signed import Signed, about, terms_of_yes
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, InvalidInput
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.gating.fields import amount_in
from runs.engine.gating.proof import AMOUNT, PASSKEY, TARGET, Threshold, Wanted, wanted_in, wanted_of
from runs.engine.gating.stages import APPROVE


@dataclass(frozen=True, slots=True)
class Answer:
    """`page` is the response to a failed proof; without it the form continues, with a passkey's signature if any."""

    page: HttpResponse | None = None
    signed: Signed | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """`ask` returns the page that asks and keeps the form; None if the user has no suitable factor. `answer` checks a
    form from that page. The text completes "Show once more who you are, to …"; the terms are what a passkey would sign
    (passkeys/signed.py)."""

    ask: Callable[[HttpRequest, str, Wanted, dict[str, Any]], HttpResponse | None]
    answer: Callable[[HttpRequest, str, dict[str, Any]], Answer]


askers: list[Asker] = []


def ask(request: HttpRequest, what: str, wanted: Wanted, terms: dict[str, Any]) -> HttpResponse | None:
    """Return the page that asks; None if the user has no suitable factor."""
    return askers[0].ask(request, what, wanted, terms) if askers else None


def answer(request: HttpRequest, what: str, terms: dict[str, Any]) -> Answer:
    """Check the form's proof; the answer has the page again if it is wrong."""
    return askers[0].answer(request, what, terms) if askers else Answer()


class ProofNeeded(DurableAgentsError):
    """The approver's authentication is too old or too weak. Nothing was done; they may try again."""

    status, code, title = 403, "proof-needed", "Recent sign-in required"

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        what = "your second factor" if wanted.factor else "your password or second factor"
        super().__init__(
            f"Approving this requires {what}, given within the last {minutes(wanted.within)}. "
            "Decide it on its page in the console.",
            within_seconds=wanted.within,
            second_factor=wanted.factor,
        )


class KeyCannotProve(DurableAgentsError):
    status, code, title = 403, "key-cannot-prove", "An API key can't prove who uses it"

    def __init__(self, wanted: Wanted) -> None:
        what = "a second factor" if wanted.factor else "a password or a second factor"
        super().__init__(
            f"Approving this requires {what}, given within the last {minutes(wanted.within)}, which an API key "
            "can't provide. Approve it in the console; a key may only reject it.",
            within_seconds=wanted.within,
            second_factor=wanted.factor,
        )


class SignedForElse(DurableAgentsError):
    """The passkey's signature is not for this decision."""

    status, code, title = 403, "passkey-for-else", "The passkey signed another decision"

    def __init__(self, why: str) -> None:
        super().__init__(f"The passkey's signature is not valid for this: {why}. Nothing was decided; try again.")


class NothingToShow(DurableAgentsError):
    """The user has no second factor, or neither that nor a password."""

    status, code, title = 403, "nothing-to-show", "No second factor"

    def __init__(self, wanted: Wanted) -> None:
        what = "a second factor" if wanted.factor else "a password or a second factor of this installation"
        super().__init__(
            f"Approving this requires {what}, and you have none. Set up a second factor on your account page, then "
            "decide it. Your text is kept."
        )


def minutes(seconds: int) -> str:
    """Return a time as text."""
    count = max(1, seconds // 60)
    return f"{count} minute{'' if count == 1 else 's'}"


def wanted_for(approval: Approval, agent: str, thresholds: Iterable[Threshold]) -> Wanted:
    """Return what an approval of a question must prove now. Raises DefinitionError for an unreadable plan."""
    return wanted_by(approval.planned(), agent, approval.tool, thresholds)


def wanted_by(plan: Any, agent: str, tool: str, thresholds: Iterable[Threshold]) -> Wanted:
    """Return the same for a parsed plan. Raises DefinitionError."""
    if not isinstance(plan, dict):
        raise DefinitionError("the plan can't be read")
    asked = wanted_in(plan)
    for each in thresholds:
        asked = asked.joined(wanted_of(plan, each.asked_of(amount_in(plan), _risk(agent, tool))))
    return asked


def _risk(agent: str, tool: str) -> str:
    """Return the tool's declared risk; empty if this process doesn't know the agent."""
    try:
        return next((each.risk for each in registry.find(agent).all_tools() if each.name == tool), "")
    except DurableAgentsError:
        return ""


def shown(
    wanted: Wanted, typed: Mapping[str, str], *, by: Actor, now: datetime, signed: Signed | None = None
) -> dict[str, Any] | None:
    """Return the proof for the record; None if none is needed. `signed` is a passkey's signature for this approval; one
    used to sign in doesn't count. Raises InvalidInput for what was not typed, ProofNeeded, KeyCannotProve."""
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
    """Return the proof by passkey, its age counted from the challenge: the signature is newer."""
    at = datetime.fromisoformat(signed.terms["at"])
    age = ceil((now - at).total_seconds())
    if wanted.not_fresh(age, PASSKEY):
        raise ProofNeeded(wanted)
    return {"by": PASSKEY, "at": at.isoformat(), "age": age, "assertion": signed.digest}


def check_signed(signed: Signed, approval: Approval, verdict: str, by: Actor) -> None:
    """Check that a passkey's signature is valid and for this decision. Raises SignedForElse."""
    right = terms_of_yes(approval.id, approval.revision, approval.plan_hash, verdict, by.person)
    if by.kind != "user" or by.person is None or about(signed.terms) != right:
        raise SignedForElse("it was made for another decision")
    # The question's lock prevents another use between check and insert.
    if Assertion.objects.filter(challenge=signed.challenge).exists():
        raise SignedForElse("it was used already")
    if problem := signed.problem():
        raise SignedForElse(problem)


def _not_typed(wanted: Wanted, missing: list[str]) -> InvalidInput:
    what = {AMOUNT: "the amount", TARGET: "the subject"}
    return InvalidInput(
        f"Type {' and '.join(f'{what[name]} {wanted.typed[name]}' for name in missing)}. Nothing has been decided.",
        errors=[
            {"field": f"typed_{name}", "problem": "is not what is being decided", "fix": f"type: {wanted.typed[name]}"}
            for name in missing
        ],
    )


class StepUp(DecisionGuard):
    """Above a threshold an approval is typed, and its person has signed in again."""

    def proof(self, pending: PendingDecision) -> dict[str, Any]:
        """Raises SignedForElse, InvalidInput, ProofNeeded, KeyCannotProve; DefinitionError for an unreadable plan."""
        approval, by, signed = pending.approval, pending.by, pending.signed
        if signed is not None:
            check_signed(signed, approval, pending.verdict, by)
        if pending.verdict != APPROVE:
            return {}
        wanted = wanted_for(approval, pending.run.graph_id, pending.thresholds)
        return shown(wanted, pending.typed, by=by, now=pending.now, signed=signed) or {}

    def store(self, pending: PendingDecision, decision: Decision) -> None:
        if pending.signed is not None and "assertion" in (decision.proof or {}):
            Assertion.of(pending.signed, decision=decision, run_id=pending.run.id).save(force_insert=True)


STEP_UP = StepUp()
