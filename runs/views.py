"""Pages of runs, and what people do to them. A view parses, calls one service, renders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from ledger import strict_json
from ledger.access import OPERATOR, actor, roles
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.keyset import opened
from ledger.pages import EVERYONE, Page, SharedPage, is_fragment, justification, stated
from ledger.rest import unstorable
from ledger.tally import Tally
from runs import authority, lists, questions, services
from runs.asking import Wrong, answer_of, asked, given_in
from runs.dossier import Sight, gather
from runs.engine.agents import registry
from runs.models import Run

TABS = {
    "timeline": "Timeline",
    "transcript": "Transcript",
    "checkpoints": "Checkpoints",
    "decisions": "Approvals & overrides",
    "journal": "Journal",
}


class RunsPage(SharedPage):
    """All runs, filtered by what the address says."""

    template = "runs/list.html"
    section = "runs"

    def told(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        filters = lists.Filters.of(query)
        cards, more = lists.page(filters)
        names = list(dict.fromkeys(agent.name for agent in registry.agents()))
        tabs = lists.tabs(filters, lists.counts(tally, filters))
        return {"filters": filters, "cards": cards, "more": more, "agents": names, "tabs": tabs}


def _number(request: HttpRequest, name: str) -> int | None:
    """A number from the address; anything else counts as not given."""
    given = request.GET.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else None


@dataclass(frozen=True, slots=True)
class Refused:
    """An act that was not done: why, and what the person had written, so that nothing is lost."""

    act: str
    error: DurableAgentsError
    text: str
    verdict: str = ""
    receipt: str = ""
    is_gone: bool = False


class RunPage(Page):
    """One run: what it does, what it did, what can be done."""

    template = "runs/run.html"
    section = "runs"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        return self.tell(request, run_id)

    def tell(self, request: HttpRequest, run_id: UUID, refused: Refused | None = None, wrong: Wrong | None = None) -> HttpResponse:
        sight = sight_of(request)
        dossier = gather(run_id, sight)
        context: dict[str, Any] = {
            "d": dossier, "run": dossier.run, "story": dossier.story, "look": dossier.look, "tab": sight.tab, "tabs": TABS, "refused": refused, "not_taken": wrong,
            "questions": asked(dossier.waits, roles(request.user), wrong, dossier.put), "lane": dossier.lane,
            "may": authority.may(dossier.run, roles(request.user), request.user.pk),
        }  # fmt: skip
        if sight.tab == "timeline":
            context["scale"] = dossier.scale(is_true=request.GET.get("scale") == "true")
        not_done = refused or wrong
        if not_done:
            context["here"] = f"{reverse('run', args=[run_id])}?tab={sight.tab}"
        return self.show(request, context, status=not_done.error.status if not_done else 200)


def sight_of(request: HttpRequest) -> Sight:
    """What the address asks to see."""
    tab = request.GET.get("tab", "timeline")
    return Sight(
        tab=tab if tab in TABS else "timeline",
        rows=_number(request, "rows") or 1,
        effects=_number(request, "effects") or 1,
        acts=_number(request, "acts") or 1,
        before=_number(request, "before"),
        is_opened=not is_fragment(request),
    )


class Act(RunPage):
    """One thing that a person does to a run. `verb` is the service's name, `done` what the page says afterwards. Who may depends on the
    run: `authority` says so."""

    allowed: ClassVar[frozenset[str]] = frozenset(authority.STOPPERS)
    http_method_names = ["post"]
    verb: ClassVar[str] = ""
    done: ClassVar[str] = ""

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        text = justification(request)
        service: Callable[..., Run] = getattr(services, self.verb)
        try:
            role = authority.role_to(self.verb, services.find(run_id), held=roles(request.user), person=request.user.pk)
            service(run_id, by=actor(request, role), justification=stated(text))
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused(self.verb, error, text))
        messages.success(request, self.done, extra_tags="ok")
        return redirect("run", run_id=run_id)


class Pauses(Act):
    verb, done = "pause", "Pause requested. It is on the record."


class Resumptions(Act):
    verb, done = "resume", "Resumed. It is on the record."


class Cancellations(Act):
    verb, done = "cancel", "Cancellation requested. It is on the record."


class Retries(Act):
    allowed = frozenset({OPERATOR})
    verb, done = "retry", "The run goes on from the step that failed. It is on the record."


class Reconciliations(Act):
    """Settling what became of a call."""

    allowed = frozenset({OPERATOR})
    verb, done = "reconcile", "Settled. It is on the record."

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        text, verdict, written = justification(request), request.POST.get("verdict", ""), request.POST.get("receipt", "")
        is_gone = request.POST.get("sender_is_gone") == "on"
        try:
            if verdict not in ("happened", "did_not", "fail"):
                problem = {"field": "verdict", "problem": "none chosen", "fix": "choose what became of the call"}
                raise InvalidInput("Choose what became of the call.", errors=[problem])
            receipt = receipt_of(written) if verdict == "happened" else None
            services.reconcile(
                run_id, verdict=verdict, receipt=receipt, sender_is_gone=is_gone, justification=stated(text), by=self.acting(request),
                wait_id=wait_named(request.POST.get("wait", "")),
            )  # fmt: skip
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused(self.verb, error, text, verdict, written, is_gone))
        messages.success(request, self.done, extra_tags="ok")
        return redirect("run", run_id=run_id)


class Answers(RunPage):
    """Answering what a run asks. Who may is the question's business, so the service has the last word on it."""

    allowed: ClassVar[frozenset[str]] = EVERYONE
    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID, wait_id: UUID) -> HttpResponse:
        wait, text = questions.question(run_id, wait_id), justification(request)
        document = answer_of(wait, {name: value for name, value in request.POST.items() if isinstance(value, str)})
        try:
            if problems := unstorable(document):
                raise InvalidInput("The form holds values that can't be stored.", errors=problems)
            by = self.acting(request, prefer=questions.roles_for(wait))
            services.answer(run_id, wait_id, given_in(wait, document), by=by, justification=stated(text))
        except InvalidInput as error:
            return self.tell(request, run_id, wrong=Wrong(wait_id, document, text, error))
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused("answer", error, text))
        messages.success(request, "Answered. The run goes on.", extra_tags="ok")
        return redirect("run", run_id=run_id)


def wait_named(text: str) -> UUID | None:
    """Which call the form speaks of. One that was cut or made up names none that is open."""
    try:
        return UUID(text) if text else None
    except ValueError:
        return UUID(int=0)


def receipt_of(written: str) -> Any:
    """What upstream gave as proof: JSON if it is JSON, else the words themselves; nothing is nothing."""
    written = written.strip()
    if not written:
        return None
    try:
        receipt = strict_json.loads(written.encode("utf-8", "replace"))
        if problems := unstorable(receipt):
            raise InvalidInput("The receipt holds a value that can't be stored.", errors=problems)
        return receipt
    except strict_json.MalformedJSON as error:
        if written[0] in "{[":
            words = str(error).removeprefix("The body is not JSON: ")
            problem = {"field": "receipt", "problem": words, "fix": "correct the JSON, or write plain words"}
            raise InvalidInput(f"The receipt is not valid JSON: {words}", errors=[problem]) from None
        return written.replace("\x00", "\ufffd")


class ReconcilePage(SharedPage):
    """What only an operator can settle."""

    template = "runs/reconcile.html"
    section = "reconcile"

    def told(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        place = opened(query.get("beyond", ""))
        cards, more = lists.needing_operator(beyond=place)
        return {"cards": cards, "more": more, "is_from_start": place is None}
