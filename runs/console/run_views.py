"""Pages of runs, and the actions on them. Each view parses, calls one service, and renders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from ledger.actors import Actor
from ledger.api.present import masked
from ledger.errors import DurableAgentsError, InvalidInput, TooLarge
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.cursors import opened, placed, placed_at
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_base import EVERYONE, Page, SharedPage, is_fragment
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, actor, role_in, roles
from ledger.web.seeing.payloads import HIDDEN, WHO_GIVES, must_read
from ledger.web.tally import Tally
from runs import features
from runs.console import budgets
from runs.console.questions import Wrong, answer_of, open_questions
from runs.console.run_page import Dossier, PageScope, gather
from runs.console.talk import SENDERS, NotSent, request_of, talk_of
from runs.engine.agents import registry
from runs.models import Wait
from runs.queries import run_list, spending
from runs.queries.actions import Reader, steering
from runs.queries.doubts import Link, link_of
from runs.queries.open_effects import STATUSES, Filters, open_effects
from runs.queries.progress import ProgressPanel, size_of
from runs.queries.searching import BadSearch
from runs.queries.status import what_follows
from runs.services import authority, lifecycle, questions, thinking
from runs.services.bodies import AnswerBody, MessageBody, ModelsBody
from runs.services.budgets import raising
from runs.services.messages import reading, sending
from runs.services.messages.sending import agent_of
from runs.services.settling import agreeing
from runs.services.settling.agreeing import Heard, Proposal, counts, heard
from runs.services.settling.senders import has_hook


@dataclass(frozen=True, slots=True)
class Panel:
    """The panel of an unknown outcome.
    `is_for_two`: two people are needed; `is_own`: the reader made the first proposal; `can_ask`: the upstream system
    can be queried; `is_read`: the reader may read payloads; `link`: a link to the call in the upstream system."""

    heard: Heard
    is_for_two: bool
    is_own: bool
    counts: bool
    can_ask: bool
    is_read: bool
    link: Link | None

    @property
    def said(self) -> Proposal | None:
        return self.heard.said

    @property
    def receipt(self) -> Any:
        """Return the proposal's receipt, if the reader may see it."""
        return self._shown(None if self.said is None else self.said.receipt)

    @property
    def result(self) -> Any:
        return self._shown(self.heard.result)

    @property
    def can_agree(self) -> bool:
        """Return whether the reader could confirm the proposal. They must be able to read the run's payloads."""
        return self.said is not None and self.said.is_open and not self.is_own and self.is_read and self.counts

    def _shown(self, value: Any) -> Any:
        return masked(value) if self.is_read else HIDDEN


def panel_of(dossier: Dossier, person: int | None) -> Panel | None:
    """Return the panel; None if the run has no unknown outcome."""
    wait = dossier.wait
    if wait is None or wait.kind != Wait.Kind.RECONCILE:
        return None
    known = heard([wait])[wait.pk]
    is_own = known.said is not None and known.said.person == person
    link = link_of(dossier.run, wait) if dossier.is_read else None
    is_able = known.said is not None and counts(known.said)
    return Panel(
        known, dossier.facts.related.is_for_two, is_own, is_able, has_hook(dossier.run, wait), dossier.is_read, link
    )


TABS = {
    "timeline": "Timeline",
    "transcript": "Transcript",
    "checkpoints": "Checkpoints",
    "decisions": "Approvals & overrides",
    "journal": "Journal",
}


class RunsPage(SharedPage):
    """Runs, filtered by the query string."""

    template = "runs/list.html"
    section = "runs"

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        filters, misread, search = run_list.Filters.of(query), None, features.only(lambda each: each.search)
        try:
            cards, more = run_list.page(filters)
        except BadSearch as error:  # The search fails, but its text stays in the form.
            misread, cards, more = error, [], ""
        names = list(dict.fromkeys(agent.name for agent in registry.agents()))
        counted = run_list.Numbers({}) if misread else run_list.counts(tally, filters)
        return {
            "filters": filters,
            "cards": cards,
            "more": more,
            "agents": names,
            "misread": misread,
            "tabs": run_list.tabs(filters, counted),
            "has_search": search is not None,
            "known": search.attributes(filters.agent) if search else [],
            "orders": run_list.orders(filters),
            "waits": [("any", "waiting"), ("overdue", "overdue"), ("escalated", "escalated")],
            "ages": run_list.AGES,
            "unlisted": filters.unlisted,
            "list_links": list(features.parts_of_all(lambda each: each.run_list_links))
            if role_in(authority.STOPPERS, held) is not None
            else [],
        }


def _number(request: HttpRequest, name: str) -> int | None:
    given = request.GET.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else None


class RunPage(FormPage):
    """A run: its current activity, history, and available actions."""

    template = "runs/run.html"
    section = "runs"

    def tell(
        self,
        request: HttpRequest,
        refused: Refused | None = None,
        *,
        run_id: UUID,
        wrong: Wrong | None = None,
        unsent: NotSent | None = None,
    ) -> HttpResponse:
        sight = sight_of(request)
        if refused is not None and refused.act == authority.MODELS:
            sight = replace(sight, tab="transcript")  # the tab that has the form
        dossier = gather(run_id, sight)
        context: dict[str, Any] = {
            "d": dossier,
            "run": dossier.run,
            "story": dossier.story,
            "reason": dossier.reason,
            "tab": sight.tab,
            "tabs": TABS,
            "refused": refused,
            "not_taken": wrong,
            "questions": open_questions(dossier.waits, roles(request.user), wrong, dossier.put),
            "lane": dossier.lane,
        }
        held, person = roles(request.user), request.user.pk
        stands = authority.standing_for(dossier.run, held)
        context["may"] = may = stands.allowed(held, person)
        if dossier.erasure is not None:
            context["may"] = may = frozenset()
        context["acts"] = {} if dossier.erasure else steering(dossier.facts, Reader(actor(request, ""), held), stands)
        if sight.tab == "transcript":
            context["asked"] = thinking.asked_by(run_id)
        context["budget"] = budgets.block(
            dossier.run, dossier.head, dossier.waits, may=may, parent=dossier.above, refused=refused
        )
        context["settling"] = panel_of(dossier, person)
        context["size"] = size_of(dossier.run, dossier.head)
        context["progress"] = ProgressPanel(run_id, dossier.head)
        if sight.tab == "timeline":
            context["scale"] = dossier.scale(is_true=request.GET.get("scale") == "true")
        held = roles(request.user)
        context["talk"] = talk_of(dossier.run, dossier.agent, held, unsent, hidden=dossier.hidden)
        context["unsent"], context["who_gives"] = unsent, WHO_GIVES
        run, head, user = dossier.run, dossier.head, request.user
        made = [panel(run, head, user) for panel in features.parts_of_all(lambda each: each.run_panels)]
        context["panels"] = [panel for panel in made if panel is not None]
        not_done = refused or wrong or unsent
        if not_done:
            context["here"] = f"{reverse('run', args=[run_id])}?tab={sight.tab}"
        return self.show(request, context, status=not_done.error.status if not_done else 200)


def sight_of(request: HttpRequest) -> PageScope:
    tab = request.GET.get("tab", "timeline")
    return PageScope(
        tab=tab if tab in TABS else "timeline",
        rows=_number(request, "rows") or 1,
        effects=_number(request, "effects") or 1,
        acts=_number(request, "acts") or 1,
        before=_number(request, "before"),
        is_opened=not is_fragment(request),
    )


class RunAct(Act, RunPage):
    """An operator's action on a run, from a form on its page."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    page, has_own_page = "run", True


class Steering(RunAct):
    """An action whose permission depends on the run; it is checked before the form."""

    @property
    def by(self) -> Actor:
        user, run = self.request.user, lifecycle.find(self.kwargs["run_id"])
        return actor(self.request, authority.role_to(self.act, run, held=roles(user), person=user.pk))


class Stopping(Steering):
    allowed = frozenset(authority.STOPPERS)


class Budgets(Steering):
    """Setting a run's budget."""

    allowed = frozenset(authority.RAISERS)
    act, done = authority.BUDGET, "Budget saved."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Set the caps. Raises DurableAgentsError."""
        body = budgets.sent(form)
        raising.set_budget(address["run_id"], body.budget, by=by, justification=body.justification, seen=body.if_caps)

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Show a message. It warns if the new caps are still too low for the run to continue."""
        waits = Wait.objects.filter(run=address["run_id"], kind=Wait.Kind.BUDGET, resolved_at__isnull=True)
        if (asked := spending.exceeded(waits)) is None:
            return super().after(request, result, **address)
        words = f"Budget saved, but it isn't enough. {budgets.enough_words(asked)}"
        messages.warning(request, words, extra_tags="hold")
        return redirect("run", **address)


class Models(RunAct):
    act, done = authority.MODELS, "Models changed. The models apply from the next request on."
    service, body, reads, takes_fields = staticmethod(thinking.move), ModelsBody, {"models": str.split}, True

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Redirect to the tab with the form."""
        messages.success(request, self.done, extra_tags="ok")
        return redirect(f"{reverse('run', kwargs=address)}?tab=transcript")


class Answers(RunPage):
    """Answers a question of a run.
    Authorization is checked before the form, so that its errors come second."""

    allowed: ClassVar[frozenset[str]] = EVERYONE
    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID, wait_id: UUID) -> HttpResponse:
        form = Sent(request)
        try:
            wait = questions.question(run_id, wait_id)
            by = actor(request, questions.role_to_answer(wait, roles(request.user)))
            body = _answer(wait, form, request.POST)
            questions.answer(run_id, wait_id, body.answer, by=by, justification=body.justification)
        except (InvalidInput, TooLarge) as error:
            return self.tell(
                request, run_id=run_id, wrong=Wrong(wait_id, request.POST, form.kept.get("justification", ""), error)
            )
        except DurableAgentsError as error:
            return self.tell(request, Refused("answer", error, form.kept), run_id=run_id)
        messages.success(request, f"Answered. {what_follows(run_id)}", extra_tags="ok")
        return redirect("run", run_id=run_id)


def _answer(wait: Wait, form: Sent, data: QueryDict) -> AnswerBody:
    """Return the answer and the justification. Raises InvalidInput, TooLarge, RecordDamaged."""
    form.check(data)
    found = {"answer": answer_of(wait, data), "justification": form.texts.get("justification", "")}
    if problems := unstorable(found):
        raise does_not_fit(problems, "form")
    return fit(AnswerBody, found, "form")


class Messages(RunPage):
    """Sends a message. The form has an id, so that sending it twice yields one message."""

    allowed: ClassVar[frozenset[str]] = frozenset(SENDERS)
    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID, name: str) -> HttpResponse:
        form = Sent(request)
        try:
            run = lifecycle.find(run_id)
            declared = sending.declared_of(run, name)
        except DurableAgentsError as error:
            return self.tell(request, Refused("message", error, form.kept), run_id=run_id)
        try:
            form.check(request.POST)
            found = {"body": request_of(declared, request.POST), "id": form.texts.get("sent_id") or None}
            if problems := unstorable(found):
                raise does_not_fit(problems, "form")
            body = fit(MessageBody, found, "form")
            role = next(role for role in SENDERS if role in roles(request.user))
            sending.send(run_id, name, body.body, by=actor(request, role), sender_id=body.id)
        except DurableAgentsError as error:
            return self.tell(request, run_id=run_id, unsent=NotSent(name, request.POST, error))
        messages.success(request, "Sent. The answer will appear below.", extra_tags="ok")
        return redirect("run", run_id=run_id)


class ViewPage(Page):
    """One of the agent's views of a run's recorded state."""

    template = "runs/view.html"
    section = "runs"

    def get(self, request: HttpRequest, run_id: UUID, name: str) -> HttpResponse:
        run = lifecycle.find(run_id)
        must_read(run_id)
        try:
            value, problem = masked(reading.read(run_id, name)), None
        except (reading.ViewFailed, reading.ViewTooSlow) as error:
            value, problem = None, error
        view = agent_of(run).views[name]
        context = {"run": run, "view": view, "value": value, "problem": problem}
        return self.show(request, context, status=problem.status if problem else 200)


class ReconcilePage(SharedPage):
    """Unknown outcomes, other stops for operators and exhausted budgets; or all calls without a known outcome."""

    template = "runs/reconcile.html"
    section = "reconcile"

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        if query.get("show") == "effects":
            return _open_effects(query)
        place = opened(query.get("beyond", ""))
        cards, more = run_list.needing_operator(beyond=place)
        may_raise = bool(held & {OPERATOR, authority.raises_budgets()})
        words = agreeing.newest(card.wait for card in cards if card.wait is not None)
        made = [panel() for panel in features.parts_of_all(lambda each: each.reconcile_panels)] if place is None else []
        return {
            "rows": [(card, words.get(card.wait.id)) for card in cards if card.wait is not None],
            "more": more,
            "is_from_start": place is None,
            "may_raise": may_raise,
            "panels": [panel for panel in made if panel is not None],
        }


def _open_effects(query: QueryDict) -> dict[str, Any]:
    """Return the page's data on calls without a known outcome."""
    texts = {name: query.get(name, "").replace("\x00", "")[:200] for name in ("tool", "agent", "status")}
    if texts["status"] not in STATUSES:
        texts["status"] = ""
    place = placed_at(query.get("beyond", ""))
    found = open_effects(Filters(**texts), limit=run_list.PAGE + 1, beyond=place)
    shown = found[: run_list.PAGE]
    more = placed(shown[-1].sent_at, shown[-1].id) if len(found) > len(shown) else ""
    given = {"show": "effects"} | {name: text for name, text in texts.items() if text}
    return {
        "effects": shown,
        "filters": texts,
        "statuses": STATUSES,
        "more": more and f"?{urlencode(given | {'beyond': more})}",
        "is_from_start": place is None,
    }
