"""Verifies passkey signatures against their decisions and the records of their passkeys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from approvals.models import Decision
from durableagents.contrib.accounts.assertions import about
from durableagents.contrib.step_up.models import Assertion, terms_of_yes
from ledger.models import AccountRecord
from ledger.verification.runs import SLACK, EventLine, ReadJournal
from runs.engine.gating.proof import PASSKEY


class Assertions:
    """Check the passkeys' signatures of one run's decisions."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: EventLine) -> None:
        """Ignore the journal's events: `approvals` compares them with the decisions."""

    def problems(self) -> Iterator[str]:
        """Yield a problem for each signature that is missing or doesn't match its decision."""
        signed = set()
        for row in self.journal.rows(Assertion, "id", related=["decision__approval"]):
            signed.add(row.decision_id)
            decision, what = row.decision, f"the assertion with decision {row.decision_id}"
            proof = decision.proof if isinstance(decision.proof, dict) else {}
            if decision.approval.run_id != self.journal.run_id:
                yield f"{what}: its decision belongs to another run"
            of = decision.approval
            right = terms_of_yes(of.pk, of.revision, decision.plan_hash, decision.verdict, decision.person)
            try:
                digest, problem = row.signed.digest, row.signed.problem()
                is_for_it = about(row.terms) == right and bytes(row.challenge) == row.signed.challenge
            except (TypeError, ValueError, AttributeError) as error:
                yield f"{what} can't be read: {error}"
                continue
            if problem:
                yield f"{what} is not valid: {problem}"
            if proof.get("by") != PASSKEY or proof.get("assertion") != digest:
                yield f"{what} is not the one made for that decision"
            if not is_for_it:
                yield f"{what} was signed for something else"
            if row.person != decision.person:
                yield f"{what} is by a different account from that of the decision"
            elif not_theirs := _not_theirs(row, decision.at):
                yield f"{what}: {not_theirs}"
        if "approvals_approval" in self.journal.present:
            proven = Decision.objects.filter(approval__run_id=self.journal.run_id, proof__by=PASSKEY)
            for pk in proven.exclude(pk__in=signed).order_by("pk").values_list("pk", flat=True):
                yield f"decision {pk}: the data signed by its passkey was not stored"


def _not_theirs(row: Assertion, at: datetime) -> str:
    """Return why the passkey did not belong to this account at the time; empty if it did."""
    records = AccountRecord.objects.filter(
        subject_person=row.person, action__in=["factor_added", "factor_removed"], at__lte=at + SLACK
    )
    last = None
    for record in records.order_by("id"):
        values = record.after if record.action == "factor_added" else record.before
        if isinstance(values, dict) and values.get("key") == row.key:
            last = record
    if last is None:
        return f"no passkey of this key was ever set up by account {row.person}"
    if last.action == "factor_removed" and last.at < at - SLACK:
        return "the passkey had already been removed"
    return "" if last.is_signed else f"the passkey was added outside the application, in the name of {last.by}"
