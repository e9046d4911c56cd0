"""Proofs for an approval: typed values and a new sign-in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Any

from approvals.guards import DecisionGuard, PendingDecision
from approvals.models import Approval, Decision
from approvals.proofs import KeyCannotProve, ProofNeeded, wanted_for
from durableagents.contrib.accounts.assertions import Signed, about
from durableagents.contrib.step_up.models import Assertion, terms_of_yes
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, InvalidInput
from runs.engine.gating.proof import AMOUNT, PASSKEY, TARGET, Wanted
from runs.engine.gating.stages import APPROVE


class SignedForElse(DurableAgentsError):
    """The passkey's signature is for a different decision."""

    status, code, title = 403, "passkey-for-else", "The passkey signed a different decision"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The passkey's signature is not valid for this decision: {why}. Nothing was decided; try again."
        )


class NothingToShow(DurableAgentsError):
    """The user has no second factor and (if a password would be enough) no password either."""

    status, code, title = 403, "nothing-to-show", "No second factor"

    def __init__(self, wanted: Wanted) -> None:
        what = "a second factor" if wanted.factor else "a password or a second factor of this installation"
        super().__init__(
            f"Approving this requires {what}, which you don't have. Set up a second factor on your account page, then "
            "decide it. Your text is kept."
        )


def collect_proof(
    wanted: Wanted, typed: Mapping[str, str], *, by: Actor, now: datetime, signed: Signed | None = None
) -> dict[str, Any] | None:
    """Return the proof for the record; None if none is needed.

    `signed` is a passkey's signature of this approval; one from signing in doesn't count. Raises InvalidInput for
    values that were not typed, ProofNeeded, KeyCannotProve."""
    fields: dict[str, Any] = {}
    if wanted.typed:
        if missing := wanted.not_typed(typed):
            raise _not_typed(wanted, missing)
        fields["typed"] = {name: typed[name] for name in wanted.typed}
    if wanted.within:
        if by.kind != "user":
            raise KeyCannotProve(wanted)
        fields |= _by_passkey(wanted, signed, now) if signed is not None else _by_session(wanted, by, now)
    return fields or None


def _by_session(wanted: Wanted, by: Actor, now: datetime) -> dict[str, Any]:
    age = -1 if by.proved_at is None else ceil((now - by.proved_at).total_seconds())
    if by.proved_at is None or by.proved_by == PASSKEY or wanted.not_fresh(age, by.proved_by):
        raise ProofNeeded(wanted)
    return {"by": by.proved_by, "at": by.proved_at.isoformat(), "age": age}


def _by_passkey(wanted: Wanted, signed: Signed, now: datetime) -> dict[str, Any]:
    """Return the proof by passkey.

    The age of the proof is counted from the challenge, which is older than the signature.
    """
    at = datetime.fromisoformat(signed.terms["at"])
    age = ceil((now - at).total_seconds())
    if wanted.not_fresh(age, PASSKEY):
        raise ProofNeeded(wanted)
    return {"by": PASSKEY, "at": at.isoformat(), "age": age, "assertion": signed.digest}


def check_signed(signed: Signed, approval: Approval, verdict: str, by: Actor) -> None:
    """Check that a passkey's signature is valid and belongs to this decision. Raises SignedForElse."""
    right = terms_of_yes(approval.id, approval.revision, approval.plan_hash, verdict, by.person)
    if by.kind != "user" or by.person is None or about(signed.terms) != right:
        raise SignedForElse("it was made for another decision")
    # The lock on the question prevents another use between this check and the insert.
    if Assertion.objects.filter(challenge=signed.challenge).exists():
        raise SignedForElse("it was used already")
    if problem := signed.problem():
        raise SignedForElse(problem)


def _not_typed(wanted: Wanted, missing: list[str]) -> InvalidInput:
    what = {AMOUNT: "the amount", TARGET: "the subject"}
    return InvalidInput(
        f"Type {' and '.join(f'{what[name]} {wanted.typed[name]}' for name in missing)}. Nothing has been decided.",
        errors=[
            {"field": f"typed_{name}", "problem": "does not match this request", "fix": f"type: {wanted.typed[name]}"}
            for name in missing
        ],
    )


class FreshProof(DecisionGuard):
    """Requires that values are typed and that the person has signed in again, for approvals above a threshold."""

    def proof(self, pending: PendingDecision) -> dict[str, Any]:
        """Return the proof for a decision. Raises SignedForElse, InvalidInput, ProofNeeded, KeyCannotProve.

        Raises DefinitionError if the plan can't be read."""
        approval, by, signed = pending.approval, pending.by, pending.evidence
        if signed is not None:
            check_signed(signed, approval, pending.verdict, by)
        if pending.verdict != APPROVE:
            return {}
        wanted = wanted_for(approval, pending.run.graph_id, pending.thresholds)
        return collect_proof(wanted, pending.typed, by=by, now=pending.now, signed=signed) or {}

    def store(self, pending: PendingDecision, decision: Decision) -> None:
        if pending.evidence is not None and "assertion" in (decision.proof or {}):
            Assertion.of(pending.evidence, decision=decision, run_id=pending.run.id).save(force_insert=True)
