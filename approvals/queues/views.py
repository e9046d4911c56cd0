"""Pages of queues and limits; administrators set them there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.queues import acts, listed
from approvals.queues.acts import LiftBody, LimitBody, ProofBody, QueueBody, QueueChangeBody, ReasonsBody
from approvals.queues.who import ADMIN, is_admin
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent, told_of
from ledger.web.roles import AUDITOR, actor, ordered, roles
from ledger.web.seeing.viewers import viewer
from ledger.web.tally import Tally
from runs import features
from runs.services.bodies import SteerBody

_GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?", re.ASCII)  # 50,000.00


class QueuePage(Page):
    """For everybody with a role, and for administrators."""

    section = "queues"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they have a role or set up queues."""
        return super().may_open(held) or is_admin(self.request.user)

    def context(self, request: HttpRequest, refused: Refused | None) -> dict[str, Any]:
        """Return the context that both pages share."""
        held = roles(request.user)
        return {
            "tally": Tally(held),
            "may_set": is_admin(request.user),
            "refused": refused,
            "typed": refused.typed if refused else {},
            "me": request.user.pk,
            "sees_all": viewer().sees_all,
            "decides": any(role != AUDITOR for role in ordered(held)),
        }


class QueuesPage(QueuePage):
    """All queues."""

    template = "approvals/queues.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        known = self.context(request, refused)
        queues = listed.overview(known["tally"])
        me = request.user.pk
        shown = {
            "queues": queues,
            "panels": list(features.parts_of_all(lambda each: each.queue_list_templates)),
            "links": list(features.parts_of_all(lambda each: each.queue_list_links)),
            **known,
        }
        for panel in features.parts_of_all(lambda each: each.queue_list_panels):
            shown |= panel(me)
        return self.show(request, shown, status=refused.error.status if refused else 200)


class OneQueuePage(QueuePage):
    """A queue in full."""

    template = "approvals/queue.html"

    def get(self, request: HttpRequest, queue: str) -> HttpResponse:
        return self.tell(request, queue)

    def tell(self, request: HttpRequest, name: str, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        known = self.context(request, refused)
        queue = acts.find(name)
        panels = list(features.parts_of_all(lambda each: each.queue_templates))
        shown = {"q": listed.load_queue(queue, known["tally"]), "panels": panels, **known}
        for panel in features.parts_of_all(lambda each: each.queue_panels):
            shown |= panel(queue)
        return self.show(request, shown, status=refused.error.status if refused else 200)


class ForAdmins(Page):
    """An act for administrators; the service checks it again under its locks."""

    http_method_names = ["post"]

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they are an administrator, whatever their roles. GET passes, for its own answer."""
        return self.request.method != "POST" or is_admin(self.request.user)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the role that is allowed."""
        return self.show(request, {"needed": ["Administrator"]}, template="errors/403.html", status=403)


class Adding(ForAdmins, QueuesPage):
    """Add a queue."""

    def post(self, request: HttpRequest) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            acts.create(form.read(QueueBody, needs_amount=is_on), by=by)

        return perform_act(request, "add_queue", act, "Queue added.", self.tell) or redirect("queues")


class QueueAct(ForAdmins, OneQueuePage):
    """One act on a queue; its page shows a refused form."""

    words = ""

    def post(self, request: HttpRequest, queue: str) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            self.act(form, queue, by)

        def tell(request: HttpRequest, refused: Refused) -> HttpResponse:
            return self.tell(request, queue, refused)

        return perform_act(request, type(self).__name__, act, self.words, tell) or self.after(queue)

    def act(self, form: Sent, name: str, by: Actor) -> None:
        """Call the page's one service."""
        raise NotImplementedError

    def after(self, name: str) -> HttpResponse:
        return redirect("queue", queue=name)


class QueueChanges(QueueAct):
    """Set title, role, currency, and whether amounts are needed."""

    words = "Queue saved."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts.setdefault("needs_amount", "off")  # an unticked box sends nothing
        acts.change(name, form.read(QueueChangeBody, needs_amount=is_on), seen=seen, by=by)


class QueueClosings(QueueAct):
    """Close a queue."""

    words = "Queue closed."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        acts.close(name, by=by, justification=form.read(SteerBody).justification)


class QueueOpenings(QueueAct):
    """Open a queue."""

    words = "Queue opened."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        acts.open_again(name, by=by, justification=form.read(SteerBody).justification)


class QueueRemovals(QueueAct):
    """Remove a queue."""

    words = "Queue removed."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        acts.remove(name, by=by, justification=form.read(SteerBody).justification)

    def after(self, name: str) -> HttpResponse:
        return redirect("queues")


class QueueLimits(QueueAct):
    """Set a limit; empty means unlimited."""

    words = "Limit saved."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["most"] = form.texts.get("most") or "none"
        acts.limit(name, form.read(LimitBody, most=parse_sum), seen=seen, by=by)


class QueueLifts(QueueAct):
    """Lift a limit."""

    words = "Limit removed."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        acts.lift(name, form.read(LiftBody), seen=seen, by=by)


class QueueProofs(QueueAct):
    """Set what an approval must prove, and its threshold."""

    words = "Extra verification saved."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["above"] = form.texts.get("above") or "none"
        boxes = dict.fromkeys(("second_factor", "type_amount", "type_target"), is_on)
        acts.prove(name, form.read(ProofBody, above=parse_sum, **boxes), seen=seen, by=by)


class QueueReasons(QueueAct):
    """Set the offered reasons, one per line."""

    words = "Reasons saved."

    def act(self, form: Sent, name: str, by: Actor) -> None:
        seen = form.aside("seen")
        form.texts["reasons"] = form.texts.get("reasons") or "\n"  # an emptied field means none; it was not left out
        lines = _lines(form.texts["reasons"])
        with told_of({f"reasons.{place}": ("reasons", f"line {n}") for place, n in enumerate(lines)}):
            body = form.read(ReasonsBody, reasons=lambda text: [*lines.values()])
        acts.offer(name, body, seen=seen, by=by)


def perform_act(
    request: HttpRequest,
    name: str,
    act: Callable[[Sent, Actor], None],
    words: str,
    tell: Callable[[HttpRequest, Refused], HttpResponse],
) -> HttpResponse | None:
    """Perform the act; return the page again if it is refused."""
    form = Sent(request)
    role = ADMIN if is_admin(request.user) else (ordered(roles(request.user)) or [""])[0]
    try:
        act(form, actor(request, role))
    except DurableAgentsError as error:
        return tell(request, Refused(name, error, form.kept))
    messages.success(request, words, extra_tags="ok")
    return None


def is_on(text: str) -> Any:
    return {"on": True, "off": False}.get(text, text)


def parse_sum(text: str) -> Any:
    """Parse a sum, also with thousands separators. Ambiguous text (50,00) is left for the body's rules to refuse."""
    if text == "none":
        return None
    typed = text.strip()
    try:
        return Decimal(typed.replace(",", "") if _GROUPED.fullmatch(typed) else typed)
    except InvalidOperation:
        return text


def _lines(text: str) -> dict[int, str]:
    return {n: line.strip() for n, line in enumerate(text.split("\n"), 1) if line.strip()}


def moment(text: str) -> Any:
    """Parse a form's time, in UTC by default; other text is left for the body's rules to refuse."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
