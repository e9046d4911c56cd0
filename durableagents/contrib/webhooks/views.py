"""Pages: all webhooks, and one with its messages."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.queue_models import Queue
from approvals.queues.who import ADMIN, is_admin
from durableagents.contrib.webhooks import queries, services
from durableagents.contrib.webhooks.api import name_of
from durableagents.contrib.webhooks.events import EVENTS
from durableagents.contrib.webhooks.models import Message, Webhook
from durableagents.contrib.webhooks.services import ReplayBody, SecretBody, WebhookBody, WebhookChangeBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.bodies import Body, fit
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, OPERATOR, actor
from runs.services.bodies import SteerBody

_TEXTS = ("name", "url", "agent", "tag", "queue", "key_prefix", "started_by", "justification")


class WebhooksPage(Page):
    """All webhooks, and a form for a new one."""

    template = "webhooks/webhooks.html"
    section = "webhooks"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they may read; the services check each act."""
        return bool(held & {OPERATOR, AUDITOR}) or is_admin(self.request.user)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the roles that are allowed."""
        needed = ["Operator", "Auditor", "Administrator"]
        return self.show(request, {"needed": needed}, template="errors/403.html", status=403)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None, **named: int) -> HttpResponse:
        """Show the page, with a refused form."""
        rows, backlog = queries.active_webhooks(), queries.backlog()
        shown = {"webhooks": rows, "backlog": backlog, **_form(request, refused)}
        return self.show(request, shown, status=refused.error.status if refused else 200)


class WebhookPage(WebhooksPage):
    """One webhook with its messages and their attempts."""

    template = "webhooks/webhook.html"

    def get(self, request: HttpRequest, webhook_id: int = 0) -> HttpResponse:
        return self.tell(request, webhook_id=webhook_id)

    def tell(self, request: HttpRequest, refused: Refused | None = None, **named: int) -> HttpResponse:
        """Show the page, with a refused form."""
        row = queries.find(named["webhook_id"])
        state, before = request.GET.get("state", ""), request.GET.get("before", "")
        found = queries.messages(
            row,
            state=state if state in Message.State.values else "",
            before=int(before) if before.isdecimal() and len(before) < 19 else None,
        )
        shown = {
            "row": row,
            "started_by": name_of(row.started_by),
            "log_entries": found[: queries.PAGE],
            "more": found[queries.PAGE - 1].pk if len(found) > queries.PAGE else None,
            "state": state,
            "states": Message.State.choices,
            "is_over": row.state == Webhook.State.ENDED,
            **_form(request, refused),
        }
        return self.show(request, shown, status=refused.error.status if refused else 200)


class _Act(WebhookPage):
    """An administrator's act; the service checks the account."""

    http_method_names = ["post"]
    done: ClassVar[str] = ""

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they are an administrator; others who open the form's address are led to the page."""
        return self.request.method != "POST" or is_admin(self.request.user)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the role that is allowed."""
        return self.show(request, {"needed": ["Administrator"]}, template="errors/403.html", status=403)

    def post(self, request: HttpRequest, **named: int) -> HttpResponse:
        form = Sent(request)
        try:
            answer = self.perform(form, actor(request, ADMIN), **named)
        except DurableAgentsError as error:
            act = f"{type(self).__name__}-{form.texts.get('message', 0)}"
            return self.tell(request, Refused(act, error, form.kept), **named)
        if isinstance(answer, tuple):
            return self.show_secret(request, *answer)
        messages.success(request, self.done, extra_tags="ok")
        return redirect("webhook", webhook_id=named["webhook_id"])

    def show_secret(self, request: HttpRequest, row: Webhook, secret: str) -> HttpResponse:
        """Show the secret, once."""
        words = f"The secret that messages to {row.name} are signed with. Store it where the receiver reads it."
        shown = {"title": "Signing secret", "words": words, "secret": secret, "back": "webhooks"}
        return self.show(request, shown, template="shown_once.html")

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Call the act's service; a tuple is a webhook with its secret."""
        raise NotImplementedError


class NewWebhook(_Act):
    template = "webhooks/webhooks.html"

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Create a webhook."""
        return services.create(_read(form, WebhookBody), by=by)

    def tell(self, request: HttpRequest, refused: Refused | None = None, **named: int) -> HttpResponse:
        """Show the list with the refused form."""
        return WebhooksPage.tell(self, request, refused)


class Changes(_Act):
    done = "Webhook saved."

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Change a webhook."""
        services.change(named["webhook_id"], _read(form, WebhookChangeBody), by=by)


class Secrets(_Act):
    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Replace the secret."""
        return services.rotate(named["webhook_id"], form.read(SecretBody, overlap_hours=_number), by=by)


class Pauses(_Act):
    done = "Webhook paused. Its messages are kept for 30 days."

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Pause a webhook."""
        services.pause(named["webhook_id"], by=by, justification=form.read(SteerBody).justification)


class Resumptions(_Act):
    done = "Webhook resumed."

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Resume a webhook."""
        services.resume(named["webhook_id"], by=by, justification=form.read(SteerBody).justification)


class Ends(_Act):
    done = "Webhook ended."

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """End a webhook."""
        services.end(named["webhook_id"], by=by, justification=form.read(SteerBody).justification)


class Tests(_Act):
    done = "Test message on its way. The result appears below in a few seconds."

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Send a test message."""
        form.check([])
        services.test(named["webhook_id"], by=by)


class Replays(_Act):
    done = "Sending again."

    def perform(self, form: Sent, by: Actor, **named: int) -> Any:
        """Send one message or all since a time again."""
        body = form.read(ReplayBody, message=_number, only_failed=lambda text: text == "on")
        services.replay(named["webhook_id"], body, by=by)


def _form(request: HttpRequest, refused: Refused | None) -> dict[str, Any]:
    return {
        "may_set": is_admin(request.user),
        "refused": refused,
        "events": [(f"event.{name}", name, text) for name, text in EVENTS.items()],
        "queues": list(Queue.objects.exclude(state=Queue.State.REMOVED).order_by("name")),
    }


def _read(form: Sent, shape: type[Body]) -> Body:
    """Return the form as `shape`. Its boxes are the types; an emptied filter matches any. Raises InvalidInput."""
    boxes = {f"event.{name}": name for name in EVENTS}
    names = [name for name in _TEXTS if name in shape.model_fields]
    form.check([*boxes, *names, "has_content"])
    given: dict[str, Any] = {name: form.texts[name] for name in names if name in form.texts}
    if not given.get("url"):
        given.pop("url", None)
    given["events"] = [name for box, name in boxes.items() if form.texts.get(box) == "on"]
    given["has_content"] = form.texts.get("has_content") == "on"
    return fit(shape, given, "form")


def _number(text: str) -> Any:
    """Return a whole number; other text unchanged, for the body's rules to refuse."""
    return int(text) if text.isdecimal() and len(text) < 19 else text
