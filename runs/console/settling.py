"""Forms for settling unknown outcomes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.actors import Actor
from ledger.errors import InvalidInput
from ledger.web import strict_json
from ledger.web.page_acts import ticked, whole
from ledger.web.page_base import Page
from ledger.web.page_forms import Sent
from runs.console.run_views import RunAct
from runs.models import Wait
from runs.queries.doubts import LOOKED_AT, similar_to
from runs.services import lifecycle, reconciling
from runs.services.bodies import ReconcileBody


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


class Reconciliations(RunAct):
    """A verdict on a call. If two people must settle it, this is a proposal or its confirmation."""

    act, done = "reconcile", "Outcome recorded."

    def name_form(self, form: Sent, **address: Any) -> str:
        """Return the name of the form that was sent: the one that confirms a proposal, or the one with a verdict."""
        return AGREE if form.texts.get("agrees_with") else self.act

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Record the verdict. Raises DurableAgentsError."""
        if form.texts.get("verdict") not in reconciling.VERDICTS:
            problem = {"field": "verdict", "problem": "none chosen", "fix": "choose an outcome"}
            raise InvalidInput("Choose an outcome.", errors=[problem])
        # The receipt is used only for `happened`; otherwise it need not be JSON.
        happened = form.texts["verdict"] == "happened"
        receipt = receipt_of if happened else str
        body = form.read(ReconcileBody, receipt=receipt, sender_is_gone=ticked, agrees_with=whole)
        given = dict(body) | {"receipt": body.receipt if happened else None}
        return reconciling.reconcile(address["run_id"], by=by, **given)

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Show a message that tells whether a second person must confirm the verdict."""
        if result is None:
            return super().after(request, result, **address)
        messages.success(request, "Proposal recorded. A second operator must confirm it.", extra_tags="hold")
        return redirect("run", **address)


class SimilarPage(Page):
    """Verdicts on earlier calls that are similar to the one with the unknown outcome."""

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
