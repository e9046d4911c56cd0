"""The kinds of event that tell what people say of one question: several of them, or with changes. The others are in
`ledger/events.py`, which knows these too."""

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


class PlanAmended(Event, fact="amended"):
    """A person put other arguments in the place of those that a gate had asked about. Its question (`approval_id`, with
    the plan that they had read) is over; `next` asks for the same call with theirs, and where they may approve that,
    their yes to it follows. Payload: the justification, the arguments, and `changes`: by field what it was and what it
    is."""

    approval_id: str
    plan_hash: str
    by: str
    role: str
    next: str
    n: int = 0
