"""Determines the recipients of a notice, when deliveries are planned, and again before each is sent.

Only current rights count: people who have lost the role, started the run themselves or can no longer see it receive
nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now

from approvals.models import Approval, ApprovalState, Delegation, Inquiry
from approvals.policy import Authority, judge
from approvals.queue_models import Deputy
from approvals.queues.sight import authentic_places
from approvals.queues.standing import facts_of
from durableagents.contrib.notifications.kinds import KINDS, Audience
from durableagents.contrib.notifications.models import Notice
from ledger.accounts import PROOF, is_authentic_account
from ledger.actors import Actor
from ledger.change_control import ProposedChange, find_proposal
from ledger.web.roles import AUDITOR, OPERATOR, roles
from ledger.web.seeing.viewers import viewer_of
from runs import seen
from runs.fleet import agent_versions
from runs.journal.asked.queues import QUEUES
from runs.models import Run, State, Wait
from runs.services.authority import raises_budgets
from runs.services.questions import roles_for
from runs.services.settling.agreeing import Proposal, newest

INQUIRIES = ("inquiry", "inquiry_answer")
MAX_RECIPIENTS = 500  # accounts checked per notice


@dataclass
class Subject:
    """A notice with the current rows of its subject.

    `proposal` is the proposed outcome that the notice asks people to confirm."""

    notice: Notice
    run: Run | None
    approval: Approval | None
    wait: Wait | None
    change: ProposedChange | None = None
    inquiry: Inquiry | None = None
    proposal: Proposal | None = None

    @property
    def audience(self) -> Audience:
        return KINDS[self.notice.kind].audience

    @cached_property
    def queues(self) -> list[str]:
        """Return the queues whose people are asked: the first queue, and those added by authentic escalations."""
        if self.approval is not None:
            return authentic_places([self.approval])[self.approval.id]
        detail = None if self.wait is None else self.wait.detail
        of = str(detail.get("of", "")) if isinstance(detail, dict) else ""
        return [of] if of in QUEUES else []

    @cached_property
    def roles(self) -> frozenset[str]:
        """Return the roles of the recipients; empty if recipients don't depend on roles."""
        if self.audience == Audience.DECIDERS:
            return frozenset(role for queue in self.queues if (role := QUEUES.get(queue)))
        if self.wait is not None and self.wait.kind == Wait.Kind.INPUT:
            # Operators may answer anything; they are notified only if nobody else is asked.
            return frozenset([role for role in roles_for(self.wait) if role != OPERATOR] or [OPERATOR])
        if self.wait is not None and self.wait.kind == Wait.Kind.BUDGET:
            return frozenset(filter(None, [OPERATOR, raises_budgets()]))
        return frozenset([OPERATOR])

    @property
    def obsolete_reason(self) -> str:
        """Return why nobody needs the notice any more; empty if it is still needed."""
        notice = self.notice
        if self.approval is not None and self.approval.state != ApprovalState.OPEN:
            return f"it is {self.approval.state}"
        if self.wait is not None and self.wait.resolved_at is not None:
            return "it is settled"
        if self.inquiry is not None and self.inquiry.ended_at is not None and notice.kind == "inquiry":
            return f"it is {self.inquiry.outcome}"
        if notice.kind == "outcome_said" and not (
            self.proposal is not None and self.proposal.is_open and str(self.proposal.n) == notice.about
        ):
            return "it was withdrawn or replaced, or new information has arrived"
        if notice.kind == "failed" and (self.run is None or self.run.state != State.FAILED):
            return "the run was started again"
        if notice.kind == "version_missing" and notice.about not in agent_versions.unserved():
            return "a worker has it"
        if self.change is not None and not self.change.can_be_applied:
            return "it can no longer be applied"
        ids = (notice.run_id, notice.approval_id, notice.wait_id, _change_id(notice))
        rows = (self.run, self.approval, self.wait, self.change)
        is_gone = any(id_ is not None and row is None for id_, row in zip(ids, rows, strict=True))
        return "it is gone" if is_gone else ""


def read_subject(notice: Notice) -> Subject:
    """Read the rows of a notice's subject."""
    found = Subject(notice, None, None, None)
    if notice.run_id is not None:
        found.run = Run.objects.filter(pk=notice.run_id).first()
    if notice.approval_id is not None:
        found.approval = Approval.objects.select_related("wait").filter(pk=notice.approval_id).first()
    if notice.wait_id is not None:
        found.wait = Wait.objects.filter(pk=notice.wait_id).first()
    if notice.kind == "outcome_said" and found.wait is not None:
        found.proposal = newest([found.wait]).get(found.wait.pk)
    if notice.kind in INQUIRIES and notice.about.isdecimal():
        found.inquiry = Inquiry.objects.filter(approval=notice.approval_id, n=int(notice.about)).first()
    if (change_id := _change_id(notice)) is not None:
        found.change = find_proposal(change_id)
    return found


def _change_id(notice: Notice) -> str | None:
    kind = KINDS.get(notice.kind)
    return notice.about if kind is not None and kind.audience == Audience.SECONDS else None


def find_recipients(subject: Subject) -> list[User]:
    """Return the current recipients."""
    person, audience = subject.notice.person, subject.audience
    if person is not None:
        wanted = Q(pk=person)
    elif audience == Audience.NAMED:
        return []
    else:
        wanted = Q(groups__name__in=subject.roles)
        if audience == Audience.DECIDERS:
            wanted |= Q(pk__in=_deputies(subject.queues)) | Q(pk__in=_delegates(subject))
        if audience == Audience.STARTER and subject.run is not None and subject.run.creator is not None:
            wanted |= Q(pk=subject.run.creator)
        if audience == Audience.SECONDS:
            wanted |= Q(is_superuser=True) | Q(is_staff=True)
    found = User.objects.filter(wanted, is_active=True).distinct().order_by("pk").values("pk")[:MAX_RECIPIENTS]
    people = User.objects.filter(pk__in=found).order_by("pk").annotate(proof=PROOF)
    return [user for user in people if may_receive(subject, user)]


def may_receive(subject: Subject, user: User | None) -> bool:
    """Return whether, by current rows, an account may act on the subject or is the notice's named recipient."""
    if user is None or not user.is_active or not is_authentic_account(user):
        return False
    held, notice, run = roles(user), subject.notice, subject.run
    if subject.audience == Audience.NAMED:
        return notice.person == user.pk and (notice.kind not in INQUIRIES or bool(held - {AUDITOR}))
    if subject.audience == Audience.SECONDS:
        return subject.change is not None and subject.change.may_second(user)
    if subject.approval is not None:
        by = Actor("user", user.get_username(), person=user.pk)
        return isinstance(judge(facts_of(subject.approval, run, by, held), approves=False), Authority)
    if subject.proposal is not None and subject.proposal.person == user.pk:
        return False
    is_starter = subject.audience == Audience.STARTER and run is not None and run.creator == user.pk
    if not (held & subject.roles or is_starter or notice.person == user.pk):
        return False
    return run is None or seen.sees(viewer_of(user), run.pk)


def _deputies(queues: list[str]) -> Any:
    """Return the current deputies in these queues. Whether each may decide is checked separately."""
    there = Q(queue__name__in=queues) | Q(queue__isnull=True)
    now = Q(revoked_at__isnull=True, starts_at__lte=Now(), ends_at__gt=Now())
    return Deputy.objects.filter(there, now).values("deputy")


def _delegates(subject: Subject) -> Any:
    """Return the people to whom the approval was delegated."""
    return Delegation.objects.filter(approval=subject.notice.approval_id, ended_at__isnull=True).values("deputy")
