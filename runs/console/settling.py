"""Forms for settling unknown outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web import strict_json
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR
from runs.console.run_views import Act
from runs.models import Run, Wait
from runs.queries.doubts import LOOKED_AT, similar_to
from runs.services import lifecycle, reconciling
from runs.services.bodies import DoubtBody, ReconcileBody
from runs.services.settling import agreeing, senders


def receipt_of(written: str) -> Any:
    """Return the receipt as JSON if it is JSON, else as text. Raises InvalidInput for malformed JSON."""
    try:
        return strict_json.loads(written.encode("utf-8", "replace"))
    except strict_json.MalformedJSON as error:
        if written[0] in "{[":
            words = str(error).removeprefix("The body is not JSON: ")
            problem = {"field": "receipt", "problem": words, "fix": "correct the JSON, or write plain text"}
            raise InvalidInput(f"The receipt is not valid JSON: {words}", errors=[problem]) from None
        return written


AGREE, TAKE_BACK, ASK = "agree", "take_back", "ask_upstream"


class Reconciliations(Act):
    """A verdict on a call; where two people settle it, the first or second proposal."""

    allowed = frozenset({OPERATOR})
    verb, done = "reconcile", "Outcome recorded."
    first = "Proposal recorded. A second operator has to confirm it."

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        form = Sent(request)
        try:
            if form.texts.get("verdict") not in reconciling.VERDICTS:
                problem = {"field": "verdict", "problem": "none chosen", "fix": "choose an outcome"}
                raise InvalidInput("Choose an outcome.", errors=[problem])
            # The receipt counts only for `happened`; otherwise it need not be JSON.
            receipt = receipt_of if form.texts["verdict"] == "happened" else str
            body = form.read(ReconcileBody, receipt=receipt, sender_is_gone=_ticked, agrees_with=_number)
            waits = reconciling.reconcile(
                run_id,
                verdict=body.verdict,
                receipt=body.receipt if body.verdict == "happened" else None,
                sender_is_gone=body.sender_is_gone,
                justification=body.justification,
                by=self.acting(request),
                wait_id=body.wait_id,
                agrees_with=body.agrees_with,
            )
        except DurableAgentsError as error:
            act = AGREE if form.texts.get("agrees_with") else self.verb
            return self.tell(request, run_id, Refused(act, error, form.kept))
        if waits is None:
            messages.success(request, self.done, extra_tags="ok")
        else:
            messages.success(request, self.first, extra_tags="hold")
        return redirect("run", run_id=run_id)


class SimilarPage(Page):
    """Verdicts on earlier calls like the one with the unknown outcome."""

    template = "runs/similar.html"
    section = "reconcile"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = lifecycle.find(run_id)
        waits = run.waits.filter(kind=Wait.Kind.RECONCILE).order_by(
            F("resolved_at").desc(nulls_first=True), "-opened_at"
        )
        meant = [wait for wait in waits if str(wait.pk) == request.GET.get("wait")]
        wait = next(iter(meant or waits), None)
        return self.show(
            request,
            {
                "run": run,
                "similar": None if wait is None else similar_to(run, wait),
                "looked_at": LOOKED_AT,
            },
        )


class _OnDoubt(Act):
    """Another action on an unknown outcome, done by `service`."""

    allowed = frozenset({OPERATOR})
    service: ClassVar[Callable[..., Run]]

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(DoubtBody)
            type(self).service(run_id, body.wait_id, justification=body.justification, by=self.acting(request))
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused(self.verb, error, form.kept))
        messages.success(request, self.done, extra_tags="ok")
        return redirect("run", run_id=run_id)


class TakenBack(_OnDoubt):
    """Taking back one's own proposal."""

    verb, done = TAKE_BACK, "Proposal withdrawn."
    service = staticmethod(agreeing.take_back)


class Askings(_OnDoubt):
    """Having the upstream queried again."""

    verb, done = ASK, "Check requested. The answer will appear here."
    service = staticmethod(senders.ask)


def _ticked(text: str) -> bool | str:
    return text == "on" or text


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
