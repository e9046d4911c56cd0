"""Standing approvals in the console: list, detail, taking back, and a queue's bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from pydantic import Field

from approvals.bodies import AgainBody, DecisionBody
from approvals.brief import Brief
from approvals.granting import acts, listed
from approvals.granting.acts import BoundsBody
from approvals.grants import MAX_TIMES, Asked, Bounds, asked_in, bounds_in
from approvals.policy import No, Sum, in_ones_own_right
from approvals.queues.acts import Most
from approvals.queues.views import QueueAct, QueuePage, most
from approvals.queues.who import wrong
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.cursors import placed, placed_at
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import actor, roles
from runs.services.bodies import Moment, SteerBody

FIELDS = ("again_times", "again_until", "again_sum")


class DecisionForm(DecisionBody):
    """A decision, and with a yes how often and until when the same is let through without asking."""

    again_times: Annotated[int | None, Field(strict=False, ge=1, le=MAX_TIMES)] = None
    again_until: Moment | None = None
    again_sum: Most | None = None
    again_scope: Literal["agent", "run"] = "agent"

    @property
    def asked_again(self) -> AgainBody | None:
        """Return the form's standing approval; None if empty. Raises InvalidInput if incomplete."""
        if all(getattr(self, name) is None for name in FIELDS):
            return None
        if self.again_times is None:
            raise wrong(
                "again_times", "is missing", "enter the number of calls, or clear all fields", "“Number of calls”"
            )
        if self.again_until is None:
            raise wrong("again_until", "is missing", "enter an end time, or clear all fields", "“Expires”")
        return AgainBody(times=self.again_times, until=self.again_until, sum=self.again_sum, scope=self.again_scope)


def offer(opened: Brief) -> dict[str, Any] | None:
    """Return the standing approval that a case's page offers the reader, or None. For display: it is judged again."""
    if not opened.is_open or isinstance(in_ones_own_right(opened.facts), No):
        return None
    bounds = bounds_in(opened.facts.queue.again) if opened.facts.queue is not None else None
    if bounds is None or opened.wanted.as_json():
        return None
    try:
        asked = asked_in(opened.plan)
    except ValueError:
        return None
    return {"bounds": bounds, "asked": asked, "most": _most(bounds, asked)}


def _most(bounds: Bounds, asked: Asked) -> str:
    """Return the most in all as text; empty without a limit or amount."""
    return str(Sum(bounds.most, asked.amount.currency)) if asked.amount and bounds.most is not None else ""


def seen(error: DurableAgentsError) -> DurableAgentsError:
    """Return the error with body fields renamed to the form's flat ones."""
    for each in error.extra.get("errors", []):
        each["field"] = each["field"].replace("again.", "again_", 1)
    return error


def typed_again(refused: Refused | None) -> dict[str, str]:
    return {} if refused is None else {name: refused.typed.get(name, "") for name in (*FIELDS, "again_scope")}


class GrantsPage(QueuePage):
    """All standing approvals, newest first."""

    template = "approvals/grants.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        found = listed.page(request.user, beyond=placed_at(request.GET.get("beyond", "")), limit=listed.PAGE + 1)
        grants, more = listed.with_parties(found[: listed.PAGE]), ""
        if len(found) > listed.PAGE:
            more = placed(grants[-1].row.at, grants[-1].row.pk)
        return self.show(request, {"grants": grants, "more": more, **self.context(request, None)})


class OneGrantPage(QueuePage):
    """One standing approval with its uses."""

    template = "approvals/grant.html"

    def get(self, request: HttpRequest, grant_id: int) -> HttpResponse:
        return self.tell(request, grant_id)

    def tell(self, request: HttpRequest, grant_id: int, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        (grant,) = listed.with_parties([listed.one(grant_id, request.user)])
        shown: dict[str, Any] = {"g": grant, **self.context(request, refused)}
        return self.show(request, shown, status=refused.error.status if refused else 200)


class GrantEnds(OneGrantPage):
    """Take one back. The service checks who may."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, grant_id: int) -> HttpResponse:
        listed.one(grant_id, request.user)
        form, by = Sent(request), actor(request, "")
        try:
            why = form.read(SteerBody).justification
            held = acts.take_back(grant_id, justification=why, by=by, roles=roles(request.user))
        except DurableAgentsError as error:
            return self.tell(request, grant_id, Refused("end", error, form.kept))
        words = "Standing approval revoked. Later calls need approval again."
        if held.end is not None and not held.end.is_authentic:
            words = "Unused approvals from it are void. The database holds an earlier revocation that is not authentic."
        messages.success(request, words, extra_tags="ok")
        return redirect("standing_grant", grant_id=grant_id)


class QueueGrants(QueueAct):
    """Set the bounds at a queue."""

    words = "Standing approval limits saved."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["sum"] = form.texts.get("sum") or "none"
        acts.allow(name, form.read(BoundsBody, sum=most), seen=seen, by=by)
