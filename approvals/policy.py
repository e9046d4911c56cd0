"""Decide who may decide a case.

Pure: no Django, no I/O. Denies for an unknown or closed queue, or an unreadable amount.
"""

# Holders of a queue's role decide there within their limit. A deputy decides for a principal during a period, within
# the principal's limit and their own personal one. Operators and superusers have no implicit right. Limits apply to
# approving only. Each person has one vote in all stages of a case; a deputy's vote also counts as the principal's.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from runs.engine.gating.proof import Threshold

NOT_AUTHENTIC = (
    "The queue {queue} was changed outside the application: nobody {what} until an administrator saves it again."
)
CHANGED_FIRST = "Changes are made in {queue}, which decides first: approve it as it is, or reject it."
# Verdicts that close a question, with the resulting state. An abstention closes nothing.
VERDICTS = {"approve": "approved", "reject": "rejected", "fail": "rejected"}
ABSTAIN = "abstain"
VERDICT_TEXTS = {"approve": "approved", "reject": "rejected", "fail": "rejected", ABSTAIN: "abstained from"}
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}


@dataclass(frozen=True, slots=True)
class Sum:
    """An amount of a currency."""

    value: Decimal
    currency: str

    def __str__(self) -> str:
        number = f"{self.value:,f}"
        whole, _, part = number.partition(".")
        if len(cents := part.rstrip("0")) <= 2:
            number = f"{whole}.{cents:0<2}" if cents else whole
        sign = _SIGNS.get(self.currency)
        return f"{sign}{number}" if sign else f"{number} {self.currency}"


@dataclass(frozen=True, slots=True)
class Cap:
    """The highest amount that someone may approve alone (None: unlimited).

    `of` tells whether the limit is the role's or the person's. A forged limit allows no approval.
    """

    most: Sum | None
    of: str = "role"
    is_authentic: bool = True


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The settings of a queue, from its row. `cap` is the limit of its role."""

    name: str
    role: str
    is_open: bool = True
    is_removed: bool = False
    needs_amount: bool = False
    cap: Cap | None = None
    is_authentic: bool = True
    threshold: Threshold | None = None  # above which an approval must prove more
    reasons: tuple[str, ...] = ()  # offered to deciders, for display
    again: Any = None  # the bounds of standing approvals, from the row


@dataclass(frozen=True, slots=True)
class Member:
    """A person's account.

    `cap` is their own limit at the queue; `own_act` describes what disqualifies them in the run.
    """

    name: str
    person: int | None = None
    roles: frozenset[str] = frozenset()
    is_active: bool = True
    cap: Cap | None = None
    own_act: str | None = None
    said: str | None = None  # text about their vote in this case
    may_act: bool = True  # whether any of their roles may change anything
    is_authentic: bool = True  # whether the account is authentic

    def having(self, own_act: str | None) -> Member:
        return replace(self, own_act=own_act)


@dataclass(frozen=True, slots=True)
class Deputyship:
    """The right of a deputy to stand in for `principal` during a period."""

    id: int
    principal: Member
    starts_at: datetime
    ends_at: datetime
    is_revoked: bool = False
    is_authentic: bool = True
    is_of_one: bool = False  # for one question only, by delegation

    def is_now(self, now: datetime) -> bool:
        return not self.is_revoked and self.starts_at <= now < self.ends_at


@dataclass(frozen=True, slots=True)
class QuestionAmount:
    """A question's amount, None if its gate declares none, or the reason why it is unreadable."""

    amount: Sum | str | None = None


@dataclass(frozen=True, slots=True)
class Authority:
    """The basis of a decision: the queue's role, the principal if any, and the limits."""

    role: str
    deputyship: Deputyship | None = None
    cap: Cap | None = None
    deputy_cap: Cap | None = None
    # The queue whose role gives the right to decide, if the question was escalated to that queue.
    queue: str = ""


@dataclass(frozen=True, slots=True)
class No:
    """The reason why someone may not decide, addressed to them."""

    why: str
    # Whether only a limit is exceeded, so that they may deny but not approve.
    is_of_limit: bool = False
    # Whether they have already voted.
    has_voted: bool = False
    # Whether they are not involved in the case at all.
    is_stranger: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts needed to judge who may decide a question at a queue; `also` has those of queues it was escalated
    to."""

    queue: QueueFacts | None
    name: str
    who: Member
    now: datetime
    deputyships: Sequence[Deputyship] = field(default_factory=tuple)
    asked: QuestionAmount = QuestionAmount()
    also: Sequence[Facts] = ()


def judge(facts: Facts, *, approves: bool) -> Authority | No:
    """Return the authority for a decision, or the reason why there is none. The first queue takes precedence."""
    nos = []
    for each in (facts, *facts.also):
        found = _judge(each, approves=approves)
        if isinstance(found, Authority):
            return found if each is facts else replace(found, queue=each.name)
        nos.append(found)
    return max(nos, key=lambda no: (no.is_of_limit, no.has_voted, not no.is_stranger))  # of equal ones, the first wins


def in_ones_own_right(facts: Facts) -> Authority | No:
    """Return the authority to approve in one's own role at the first queue, ignoring deputyships and escalations."""
    return judge(replace(facts, deputyships=(), also=()), approves=True)


def thresholds(facts: Facts, authority: Authority) -> list[Threshold]:
    """Return the proof thresholds of the first queue and of the queue whose role gives the right to decide."""
    queues = [facts.queue, *(each.queue for each in facts.also if each.name == authority.queue)]
    return [queue.threshold for queue in queues if queue is not None and queue.threshold is not None]


def _judge(facts: Facts, *, approves: bool) -> Authority | No:
    """Judge at one queue. The person's own authority takes precedence over that of a deputy."""
    if facts.queue is None or facts.queue.is_removed:
        return No(f"The queue {facts.name} was removed. An administrator has to add it again.")
    queue = facts.queue
    if not queue.is_authentic:
        return No(NOT_AUTHENTIC.format(queue=queue.name, what="decides there"))
    nos = []
    for found in _standings(queue, facts):
        answer = _within(queue, found, facts.asked, approves=approves) if isinstance(found, Authority) else found
        if isinstance(answer, Authority):
            if queue.is_open:
                return answer
            return No(
                f"The queue {queue.name} is closed to decisions: an administrator has to open it, "
                "or an operator to end the run."
            )
        nos.append(answer)
    matching = [no for no in nos if no.is_of_limit] or [no for no in nos if no.has_voted] or nos
    return matching[0] if matching else No(_only(queue), is_stranger=True)


def _only(queue: QueueFacts) -> str:
    return f"Only {queue.role} decides in {queue.name}."


def _standings(queue: QueueFacts, facts: Facts) -> Iterable[Authority | No]:
    who = facts.who
    if not who.is_authentic:
        yield No("Your account was changed outside the application: an administrator has to confirm it first.")
        return
    if not who.is_active:
        yield No("Your account is closed.")
        return
    if queue.role in who.roles:
        yield _own(queue, who)
    for each in facts.deputyships:
        # Skip deputyships that are not in force, if their principals may not decide here in any case.
        if each.is_now(facts.now) or not each.is_authentic or queue.role in each.principal.roles:
            yield _in_place_of(queue, who, each, facts.now)


def _own(queue: QueueFacts, who: Member) -> Authority | No:
    if who.said:
        return No(f"You {who.said}. Each person has one vote per case.", has_voted=True)
    if who.own_act:
        return No(f"You {who.own_act}, so someone else has to decide.")
    return Authority(queue.role, cap=who.cap or queue.cap)


def _in_place_of(queue: QueueFacts, who: Member, each: Deputyship, now: datetime) -> Authority | No:
    """Return a deputy's authority, or the reason why there is none.

    Neither deputy nor principal may have taken part in the run, and principals must hold the role themselves: there are
    no deputies of deputies.
    """
    whom = each.principal
    if not each.is_authentic:
        return No(f"Your deputyship for {whom.name} is not authentic.")
    if each.is_revoked:
        how = "the delegation was ended" if each.is_of_one else "it was revoked"
        return No(f"You are no longer a deputy of {whom.name}: {how}.")
    if now < each.starts_at:
        return No(f"Your deputyship for {whom.name} starts at {_moment(each.starts_at)}.")
    if now >= each.ends_at:
        return No(f"Your deputyship for {whom.name} ended at {_moment(each.ends_at)}.")
    if not whom.is_active or queue.role not in whom.roles:
        return No(f"{whom.name}, whose deputy you are, can't decide in {queue.name}. {_only(queue)}")
    if whom.person is not None and whom.person == who.person:
        return No("Nobody can be their own deputy.")
    if not who.may_act:
        return No(f"You no longer have a role that can act for {whom.name}.")
    if who.said or whom.said:
        name = "You" if who.said else f"{whom.name}, whose deputy you are,"
        return No(f"{name} {who.said or whom.said}. Each person has one vote per case.", has_voted=True)
    if who.own_act:
        return No(f"You {who.own_act}, so someone else has to decide.")
    if whom.own_act:
        return No(f"{whom.name}, whose deputy you are, {whom.own_act}, so someone else has to decide.")
    return Authority(queue.role, deputyship=each, cap=whom.cap or queue.cap, deputy_cap=who.cap)


def _within(queue: QueueFacts, authority: Authority, amount: QuestionAmount, *, approves: bool) -> Authority | No:
    """Return the authority if the amount is within its limits, else the reason."""
    whose = authority.deputyship.principal.name if authority.deputyship else ""
    for cap, words in (
        (authority.cap, f"the limit of {whose}" if whose else "your limit"),
        (authority.deputy_cap, "your own limit"),
    ):
        if approves and (why := _beyond(queue, cap, amount.amount, words)):
            return No(why, is_of_limit=True)
    return authority


def _beyond(queue: QueueFacts, cap: Cap | None, amount: Sum | str | None, words: str) -> str:
    """Return why a limit prevents approval; empty if it doesn't."""
    if cap is None or (cap.most is None and cap.is_authentic):
        return ""
    if not cap.is_authentic or cap.most is None:
        return f"The record of {words} is not authentic, so it can't be used to approve."
    limit = f"{words} of {cap.most} in {queue.name}"
    if amount is None:
        if not queue.needs_amount:
            return ""
        return f"It has no amount, so {limit} can't be checked. Someone without a limit has to approve it."
    if isinstance(amount, str):
        return (
            f"Its amount is unclear ({amount}), so {limit} can't be checked. Someone without a limit has to approve it."
        )
    if amount.currency != cap.most.currency:
        return f"{amount} is in a different currency from {limit}. Someone without a limit has to approve it."
    if abs(amount.value) > cap.most.value:
        return f"{amount} is above {limit}. Someone with a higher limit has to approve it."
    return ""


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
