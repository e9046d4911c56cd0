"""Recipients of a notice, resolved when it is addressed and again before sending, by current rights: people who lost
the role, started the run themselves or no longer see it get nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now

from approvals.models import Approval, ApprovalState, Delegation, Inquiry
from approvals.notices.kinds import KINDS, Whom
from approvals.outbox import Notice
from approvals.policy import Standing, judge
from approvals.queue_models import Deputy
from approvals.queues.sight import authentic_places
from approvals.queues.standing import facts_of
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
MOST = 500  # checked per notice


@dataclass
class Case:
    """A notice with its subject, read now."""

    notice: Notice
    run: Run | None
    approval: Approval | None
    wait: Wait | None
    change: ProposedChange | None = None
    inquiry: Inquiry | None = None
    said: Proposal | None = None

    @property
    def whom(self) -> Whom:
        return KINDS[self.notice.kind].whom

    @cached_property
    def queues(self) -> list[str]:
        """Return the queues asked: the first and authentic escalations."""
        if self.approval is not None:
            return authentic_places([self.approval])[self.approval.id]
        detail = None if self.wait is None else self.wait.detail
        of = str(detail.get("of", "")) if isinstance(detail, dict) else ""
        return [of] if of in QUEUES else []

    @cached_property
    def roles(self) -> frozenset[str]:
        """Return the recipients' roles, if it depends on roles."""
        if self.whom == Whom.DECIDERS:
            return frozenset(role for queue in self.queues if (role := QUEUES.get(queue)))
        if self.wait is not None and self.wait.kind == Wait.Kind.INPUT:
            # Operators may answer anything; they are notified only if nobody else is asked.
            asked = [role for role in roles_for(self.wait) if role != OPERATOR]
            return frozenset(asked or [OPERATOR])
        if self.wait is not None and self.wait.kind == Wait.Kind.BUDGET:
            return frozenset(filter(None, [OPERATOR, raises_budgets()]))
        return frozenset([OPERATOR])

    @property
    def over(self) -> str:
        """Return why the notice is obsolete; empty if not."""
        if self.approval is not None and self.approval.state != ApprovalState.OPEN:
            return f"it is {self.approval.state}"
        if self.wait is not None and self.wait.resolved_at is not None:
            return "it is settled"
        if self.inquiry is not None and self.inquiry.ended_at is not None and self.notice.kind == "inquiry":
            return f"it is {self.inquiry.outcome}"
        if self.notice.kind == "outcome_said" and not self._is_said:
            return "it was taken back, something else is said, or more was told since"
        if self.notice.kind == "failed" and (self.run is None or self.run.state != State.FAILED):
            return "the run was begun again"
        if self.notice.kind == "version_missing" and self.notice.about not in agent_versions.unserved():
            return "a worker has it"
        if self.change is not None and not self.change.can_be_applied:
            return "nobody can put it in force any more"
        if self._is_gone:
            return "it is gone"
        return ""

    @property
    def _is_said(self) -> bool:
        return self.said is not None and self.said.is_open and str(self.said.n) == self.notice.about

    @property
    def _is_gone(self) -> bool:
        named = (
            (self.notice.run_id, self.run),
            (self.notice.approval_id, self.approval),
            (self.notice.wait_id, self.wait),
            (_change_id(self.notice), self.change),
        )
        return any(of is not None and row is None for of, row in named)


def case_of(notice: Notice) -> Case:
    """Read a notice's subject."""
    run = approval = wait = change = inquiry = said = None
    if notice.run_id is not None:
        run = Run.objects.filter(pk=notice.run_id).first()
    if notice.approval_id is not None:
        approval = Approval.objects.select_related("wait").filter(pk=notice.approval_id).first()
    if notice.wait_id is not None:
        wait = Wait.objects.filter(pk=notice.wait_id).first()
    if notice.kind == "outcome_said" and wait is not None:
        said = newest([wait]).get(wait.pk)
    if notice.kind in INQUIRIES and notice.about.isdecimal():
        inquiry = Inquiry.objects.filter(approval=notice.approval_id, n=int(notice.about)).first()
    if (change_id := _change_id(notice)) is not None:
        change = find_proposal(change_id)
    return Case(notice, run, approval, wait, change, inquiry, said)


def _change_id(notice: Notice) -> str | None:
    kind = KINDS.get(notice.kind)
    return notice.about if kind is not None and kind.whom == Whom.SECONDS else None


def recipients(case: Case) -> list[User]:
    """Return the current recipients."""
    wanted: Q
    if case.whom == Whom.NAMED and case.notice.person is None:
        return []
    if case.notice.person is not None:
        wanted = Q(pk=case.notice.person)
    else:
        wanted = Q(groups__name__in=case.roles)
        if case.whom == Whom.DECIDERS:
            wanted |= Q(pk__in=_deputies(case.queues)) | Q(pk__in=_holders(case))
        if case.whom == Whom.STARTER and case.run is not None and case.run.creator is not None:
            wanted |= Q(pk=case.run.creator)
        if case.whom == Whom.SECONDS:
            wanted |= Q(is_superuser=True) | Q(is_staff=True)
    found = User.objects.filter(wanted, is_active=True).distinct().order_by("pk").values("pk")[:MOST]
    people = User.objects.filter(pk__in=found).order_by("pk").annotate(proof=PROOF)
    return [user for user in people if may_be_told(case, user)]


def may_be_told(case: Case, user: User | None) -> bool:
    """Return whether an account may act on it, or it is theirs, by current rows."""
    if user is None or not user.is_active or not is_authentic_account(user):
        return False
    held = roles(user)
    if case.whom == Whom.NAMED:
        return case.notice.person == user.pk and (case.notice.kind not in INQUIRIES or bool(held - {AUDITOR}))
    if case.whom == Whom.SECONDS:
        return case.change is not None and case.change.may_second(user)
    if case.approval is not None:
        by = Actor("user", user.get_username(), person=user.pk)
        return isinstance(judge(facts_of(case.approval, case.run, by, held), approves=False), Standing)
    if case.said is not None and case.said.person == user.pk:
        return False
    if not (held & case.roles or _is_theirs(case, user)):
        return False
    return case.run is None or seen.sees(viewer_of(user), case.run.pk)


def _is_theirs(case: Case, user: User) -> bool:
    is_starter = case.whom == Whom.STARTER and case.run is not None and case.run.creator == user.pk
    return is_starter or case.notice.person == user.pk


def _deputies(queues: list[str]) -> Any:
    """Return current deputies there; whether each may decide is judged separately."""
    there = Q(queue__name__in=queues) | Q(queue__isnull=True)
    return Deputy.objects.filter(there, revoked_at__isnull=True, starts_at__lte=Now(), ends_at__gt=Now()).values(
        "deputy"
    )


def _holders(case: Case) -> Any:
    """Return people it was delegated to."""
    return Delegation.objects.filter(approval=case.notice.approval_id, ended_at__isnull=True).values("deputy")


def people_by_id(ids: Iterable[int]) -> dict[int, User]:
    """Return accounts by id."""
    return User.objects.in_bulk(list(ids))
