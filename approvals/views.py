"""Pages of the inbox, decisions and the audit list."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from approvals import services
from approvals.authentic import out_of_time
from approvals.bodies import DecisionForm
from approvals.brief import ApprovalDetail, load_approval_detail
from approvals.deciding import decide_as_requested
from approvals.inbox import Item, Wanted, inbox, queues_of
from approvals.models import Approval, ApprovalState
from approvals.policy import ABSTAIN, VERDICTS
from approvals.proofs import ProofNeeded
from approvals.queues.views import moment, parse_sum
from approvals.repeats import repeats_of
from approvals.trail import ACCOUNTS, ACTS, DECISIONS, OVERRIDES, PAGE, Filters, acts
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.verification.pages import VerifyAllPage
from ledger.web.cursors import opened
from ledger.web.page_acts import FormPage
from ledger.web.page_base import Page, SharedPage
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import APPROVER, READS_AUDIT, actor, own_cases, role_in, roles, stand_ins
from ledger.web.tally import Tally
from runs import features
from runs.engine.gating.stages import APPROVE, FAIL, REJECT
from runs.journal.asked.queues import QUEUES
from runs.queries import run_list
from runs.queries.status import what_follows, what_stops

_ACTIONS = {
    "Decisions": DECISIONS,
    "Overrides": OVERRIDES,
    "Other actions": sorted(ACTS),
    "Accounts": ("accounts", *ACCOUNTS),
}


class AuditPage(SharedPage):
    """Decisions, overrides, other acts and account changes, newest first."""

    allowed: ClassVar[frozenset[str]] = frozenset(READS_AUDIT)
    template = "audit/list.html"
    section = "audit"

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        filters = Filters.of(query)
        rows = acts(filters, PAGE + 1)
        more = filters.link(before=rows[PAGE - 1].place) if len(rows) > PAGE else ""
        return {
            "acts": rows[:PAGE],
            "more": more,
            "filters": filters,
            "actions": _ACTIONS,
            "queues": sorted(QUEUES),
            "are_any_out_of_time": tally.read({"out of time": out_of_time()})["out of time"] > 0,
            "may_verify": role_in(VerifyAllPage.allowed, held) is not None,
        }


class CasePage(Page):
    """A page of one case, or an act on it."""

    section = "inbox"

    def form_page(self, path: str, **kwargs: Any) -> str:
        return reverse("approval", args=[kwargs["approval_id"]])


class InboxPage(CasePage, FormPage):
    """The list, with one question shown next to it."""

    template = "approvals/inbox.html"

    def tell(
        self, request: HttpRequest, refused: Refused | None = None, *, approval_id: UUID | None = None
    ) -> HttpResponse:
        held, is_decision = roles(request.user), refused is None or refused.act == "decide"
        wanted = Wanted.of(request.GET, request.user.pk)
        tally = Tally(held)
        opened_brief = load_approval_detail(approval_id, held, actor(request, "")) if approval_id else None
        listed = inbox(held, tally, wanted, chosen=opened_brief.approval if opened_brief else None)
        items = listed.items
        questions, more_questions = (
            ([], "") if wanted.is_decided else run_list.questions(held, beyond=opened(request.GET.get("questions", "")))
        )
        # A wide screen has room to show the first one; a phone shows the list until one is chosen.
        chosen_brief = opened_brief or (
            load_approval_detail(items[0].approval.id, held, actor(request, "")) if items else None
        )
        context = {
            "items": items,
            "b": chosen_brief,
            "show": "decided" if wanted.is_decided else "open",
            "is_chosen": approval_id is not None,
            "refused": refused if is_decision else None,
            "unheard": None if is_decision else refused,
            "questions": questions,
            "more_questions": more_questions,
            "listed": listed,
            "wanted": wanted,
            "has_search": features.only(lambda each: each.search) is not None,
            "tally": tally,
            "here_link": wanted.here,
            "first_link": wanted.link(),
            "stands": stand_ins(held),
            "is_approver": bool(queues_of(held)),
            "next": None if wanted.is_decided else _next_item(items, chosen_brief),
            "repeats": repeats_of([chosen_brief.approval], held).get(chosen_brief.approval.id, [])
            if chosen_brief and chosen_brief.is_open and chosen_brief.is_read
            else [],
        }
        if refused and approval_id:
            context["here"] = f"{reverse('approval', args=[approval_id])}{context['here_link']}"
        return self.show(request, context, status=refused.error.status if refused else 200)


def _next_item(items: list[Item], opened: ApprovalDetail | None) -> Item | None:
    """Return the item after the open case, even if the open case is no longer in the list; after the last item, the
    first.

    Cases above the reader's limit are skipped.
    """
    mine = [item for item in items if not item.is_above]
    if opened is None or not mine:
        return None
    place = opened.approval.deadline, opened.approval.id
    others = [item for item in mine if item.approval.id != opened.approval.id]
    return next(
        (item for item in others if (item.approval.deadline, item.approval.id) > place), next(iter(others), None)
    )


def _whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else text


def _by_form_fields(error: DurableAgentsError) -> DurableAgentsError:
    """Return the error with the body's fields renamed to the form's, which are not nested."""
    for each in error.extra.get("errors", []):
        each["field"] = each["field"].replace("again.", "again_", 1)
    return error


def goes_on(before: ApprovalDetail) -> str:
    """Return the text on what happens after the last approval, given the run's current state."""
    run_id = before.approval.run_id
    if not before.asked_after:
        return what_follows(run_id)
    further = f"A policy also requires approval by {before.asked_after}. Nothing is sent yet."
    return f"{further} {what_stops(run_id)}".strip()


def _decision_message(verdict: str, decided: Approval, before: ApprovalDetail) -> str:
    if verdict == APPROVE and decided.state == ApprovalState.OPEN:
        return "Your approval is recorded. More approvals are needed."
    if verdict == APPROVE and before.next_stage is not None:
        return f"Approved. {before.next_stage.queue} decides next."
    if verdict == APPROVE:
        return f"Approved. {goes_on(before)}"
    return {
        REJECT: "Rejected. Your reason was sent to the run.",
        FAIL: "Rejected. The run fails with your reason.",
        ABSTAIN: "You abstained. Others decide.",
    }[verdict]


class Deciding(CasePage):
    """Acts of deciders, including deputies and delegates."""

    allowed: ClassVar[frozenset[str]] = frozenset({APPROVER})

    def may_open(self, held: frozenset[str]) -> bool:
        return super().may_open(held) or bool(stand_ins(held) or own_cases(held))


class Decisions(Deciding, InboxPage):
    """Decide a case. The right to decide is checked before the form."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, approval_id: UUID) -> HttpResponse:
        held = roles(request.user)
        opened = load_approval_detail(approval_id, held, actor(request, ""))
        what, approval = f"approve “{opened.title}”", opened.approval
        step_up = features.only(lambda each: each.step_up)
        page, evidence = step_up.answer(request, what, approval) if step_up else (None, None)
        if page is not None:
            return page
        form, somebody = Sent(request), actor(request, "")
        try:
            by = services.actor_for_decision(opened.approval, somebody, held)
            if form.texts.get("verdict") not in (*VERDICTS, ABSTAIN):
                raise InvalidInput(
                    "Choose Approve, Reject, Fail the run or Abstain.",
                    errors=[{"field": "verdict", "problem": "none chosen", "fix": "use a button"}],
                )
            body = form.read(DecisionForm, stage=_whole, again_until=moment, again_sum=parse_sum)
            decided = decide_as_requested(approval_id, body, body.asked_again, by, evidence=evidence)
        except ProofNeeded as needed:
            assert step_up is not None  # only a guard that checks proofs raises this
            try:
                return step_up.ask(request, what, approval, needed.wanted)
            except DurableAgentsError as refusal:
                return self.tell(request, Refused("decide", refusal, form.kept), approval_id=approval_id)
        except DurableAgentsError as error:
            return self.tell(request, Refused("decide", _by_form_fields(error), form.kept), approval_id=approval_id)
        messages.success(request, _decision_message(body.verdict, decided, opened), extra_tags="ok")
        place = Wanted.of(request.GET, request.user.pk).here
        return redirect(f"{reverse('approval', args=[approval_id])}{place}")
