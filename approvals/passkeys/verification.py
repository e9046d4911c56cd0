"""Verify assertions against their decisions and the records of their passkeys, for `approvals.verification`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.passkeys.models import Assertion
from approvals.passkeys.signed import about, terms_of_yes
from ledger.models import AccountRecord
from ledger.verification.runs import SLACK, ReadJournal
from runs.engine.gating.proof import PASSKEY


def assertion_problems(journal: ReadJournal) -> Iterator[str]:
    """Yield the problems of a run's assertions."""
    run_id = journal.run_id
    for row in journal.rows(Assertion, "id", related=["decision__approval"]):
        decision, what = row.decision, f"the assertion with decision {row.decision_id}"
        proof = decision.proof if isinstance(decision.proof, dict) else {}
        if decision.approval.run_id != run_id:
            yield f"{what}: its decision is another run's"
        of = decision.approval
        right = terms_of_yes(of.pk, of.revision, decision.plan_hash, decision.verdict, decision.person)
        try:
            digest, problem = row.signed.digest, row.signed.problem()
            is_for_it = about(row.terms) == right and bytes(row.challenge) == row.signed.challenge
        except (TypeError, ValueError, AttributeError) as error:
            yield f"{what} can't be read: {error}"
            continue
        if problem:
            yield f"{what} does not hold: {problem}"
        if proof.get("by") != PASSKEY or proof.get("assertion") != digest:
            yield f"{what} is not the one that was made for it"
        if not is_for_it:
            yield f"{what} was signed for something else"
        if row.person != decision.person:
            yield f"{what} is of another account than decided"
        elif told := _not_theirs(row, decision.at):
            yield f"{what}: {told}"


def missing_assertion(what: str, run_id: UUID, decision_id: int, proof: Any) -> Iterator[str]:
    """Check that a decision proved by passkey has its assertion."""
    if not isinstance(proof, Mapping) or proof.get("by") != PASSKEY:
        return
    if not Assertion.objects.filter(run_id=run_id, decision_id=decision_id).exists():
        yield f"{what}: what its passkey signed is not kept"


def _not_theirs(row: Assertion, at: datetime) -> str:
    """Return why the passkey was not one of this account's at that time; empty if it was."""
    records = AccountRecord.objects.filter(
        subject_person=row.person, action__in=["factor_added", "factor_removed"], at__lte=at + SLACK
    )
    last = None
    for record in records.order_by("id"):
        told = record.after if record.action == "factor_added" else record.before
        if isinstance(told, dict) and told.get("key") == row.key:
            last = record
    if last is None:
        return f"no passkey of this key was ever set up by account {row.person}"
    if last.action == "factor_removed" and last.at < at - SLACK:
        return "the passkey had been taken away before"
    return "" if last.is_signed else f"the passkey was put there outside the application, as by {last.by}"
