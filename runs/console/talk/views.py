"""Sending a run a message from its page, and reading one of its views."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.api.present import masked
from ledger.errors import DurableAgentsError
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import actor, roles
from runs.console.run_views import RunPage
from runs.console.talk.panel import SENDERS, NotSent, request_of
from runs.services.bodies import MessageBody
from runs.services.lifecycle import find
from runs.services.messages import reading, sending
from runs.services.messages.recorded import agent_of


class Messages(RunPage):
    """Sending a message. A form that is sent twice is one message: it has an id of its own."""

    allowed: ClassVar[frozenset[str]] = frozenset(SENDERS)
    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID, name: str) -> HttpResponse:
        form = Sent(request)
        try:
            run = find(run_id)
            declared = sending.declared_of(run, name)
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused("message", error, form.kept))
        try:
            form.check(request.POST)
            found = {"body": request_of(declared, request.POST), "id": form.texts.get("sent_id") or None}
            if problems := unstorable(found):
                raise does_not_fit(problems, "form")
            body = fit(MessageBody, found, "form")
            role = next(role for role in SENDERS if role in roles(request.user))
            sending.send(run_id, name, body.body, by=actor(request, role), sender_id=body.id)
        except DurableAgentsError as error:
            return self.tell(request, run_id, unsent=NotSent(name, request.POST, error))
        messages.success(request, "Sent. The answer will stand below, and on the record.", extra_tags="ok")
        return redirect("run", run_id=run_id)


class ViewPage(Page):
    """What one of the agent's views says of a run's recorded state."""

    template = "runs/view.html"
    section = "runs"

    def get(self, request: HttpRequest, run_id: UUID, name: str) -> HttpResponse:
        run = find(run_id)
        try:
            value, problem = masked(reading.read(run_id, name)), None
        except (reading.ViewFailed, reading.ViewTooSlow) as error:
            value, problem = None, error
        view = agent_of(run).views[name]
        context = {"run": run, "view": view, "value": value, "problem": problem}
        return self.show(request, context, status=problem.status if problem else 200)
