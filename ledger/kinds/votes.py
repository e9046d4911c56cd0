"""The kinds of event that tell how several people decide one thing. The others are in `ledger/events.py`, which knows
these too."""

from __future__ import annotations

from ledger.codec import Event


class ApprovalVoted(Event, fact="vote"):
    """One person said yes or no to a question, or that they stay out of it (`approve`, `reject`, `fail`, `abstain`).
    Where it was the last word that was needed, `ApprovalDecided` follows. `person` is the account, `principal` that of
    whom they stand in for. Payload: the justification, and under what standing."""

    approval_id: str
    verdict: str
    plan_hash: str
    by: str
    role: str
    person: int
    principal: int | None = None
    n: int = 0

    @property
    def fact(self) -> str:
        """One person has one vote on one question, whatever they do: the journal takes no second one."""
        return f"vote.{self.n}.{self.person}"

    @property
    def people(self) -> frozenset[int]:
        """Whose word it is: a deputy's is their own and their principal's."""
        return frozenset({self.person} if self.principal is None else {self.person, self.principal})
