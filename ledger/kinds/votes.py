"""The kinds of event that tell what people say of one question: several of them, or with changes, and whom they ask
about it or hand it to. The others are in `ledger/events.py`, which knows these too."""

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


class InquiryMade(Event, fact="inquiry"):
    """Somebody who may decide a question asked a named person about it first. `to` is that person's name, `person`
    their account; `deadline` is until when the question is open now, where its clock stops meanwhile, else empty.
    Payload: the words, when, and what the deadline and the reminders were. The `n`-th at its slot."""

    approval_id: str
    by: str
    role: str
    to: str
    person: int
    deadline: str = ""
    n: int = 0


class InquiryEnded(Event, fact="inquiry_ended"):
    """An inquiry is over. `outcome`: answered (by the person who was asked), withdrawn (by whoever asked). `deadline`
    as above, where the clock goes on by that. Payload: the words, and how long it stood. `n` is the inquiry's."""

    approval_id: str
    outcome: str
    by: str
    role: str
    deadline: str = ""
    n: int = 0


class ApprovalDelegated(Event, fact="delegated"):
    """Somebody who may decide a question handed it to a named person, who may decide it in their place from now on.
    `principal` is the account of whoever handed it over, `person` that of whoever has it. Payload: the justification.
    The `n`-th at its slot."""

    approval_id: str
    by: str
    role: str
    principal: int
    to: str
    person: int
    n: int = 0


class DelegationEnded(Event, fact="delegation_ended"):
    """What was handed over was taken back, or given back. `n` is the delegation's. Payload: the justification."""

    approval_id: str
    by: str
    role: str
    n: int = 0
