"""Pages of all webhooks, and of one webhook with its messages."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse

from approvals.queue_models import Queue
from approvals.queues.views import ForAdmins
from approvals.queues.who import ADMIN, is_admin
from durableagents.contrib.webhooks import queries, services
from durableagents.contrib.webhooks.api import name_of
from durableagents.contrib.webhooks.events import EVENTS
from durableagents.contrib.webhooks.models import Message, Webhook
from durableagents.contrib.webhooks.services import WebhookBody, WebhookChangeBody
from ledger.actors import Actor
from ledger.web.bodies import Body, fit
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, OPERATOR, actor

_TEXTS = ("name", "url", "agent", "tag", "queue", "key_prefix", "started_by", "justification")


class WebhooksPage(FormPage):
    """All webhooks, and a form for a new one."""

    template = "webhooks/webhooks.html"
    section = "webhooks"
    needed: ClassVar[tuple[str, ...]] = ("Operator", "Auditor", "Administrator")

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader may open the page. The services check each act."""
        return bool(held & {OPERATOR, AUDITOR}) or is_admin(self.request.user)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        rows, backlog = queries.active_webhooks(), queries.backlog()
        return self.show_forms(request, {"webhooks": rows, "backlog": backlog, **_form(request)}, refused)


class WebhookPage(WebhooksPage):
    """One webhook with its messages and their attempts."""

    template = "webhooks/webhook.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None, webhook_id: int = 0) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        row = queries.find(webhook_id)
        state, before = request.GET.get("state", ""), request.GET.get("before", "")
        found = queries.messages(
            row,
            state=state if state in Message.State.values else "",
            before=int(before) if before.isdecimal() and len(before) < 19 else None,
        )
        fields = {
            "row": row,
            "started_by": name_of(row.started_by),
            "log_entries": found[: queries.PAGE],
            "more": found[queries.PAGE - 1].pk if len(found) > queries.PAGE else None,
            "state": state,
            "states": Message.State.choices,
            "is_over": row.state == Webhook.State.ENDED,
            **_form(request),
        }
        return self.show_forms(request, fields, refused)


class _AdminAct(ForAdmins, Act):
    page, has_own_page = "webhook", True

    @property
    def by(self) -> Actor:
        return actor(self.request, ADMIN)

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Show a new secret, which is shown only once; otherwise show the webhook."""
        if not isinstance(result, tuple):
            return super().after(request, result, **address)
        words = f"The secret that messages to {result[0].name} are signed with. Store it where the receiver reads it."
        fields = {"title": "Signing secret", "words": words, "secret": result[1], "back": "webhooks"}
        return self.show(request, fields, template="shown_once.html")


class NewWebhook(_AdminAct, WebhooksPage):
    act = "NewWebhook-0"

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Create a webhook."""
        return services.create(_read(form, WebhookBody), by=by)


class WebhookAct(_AdminAct, WebhookPage):
    """Base class for the forms with which administrators change a webhook. The service checks the account."""

    def name_form(self, form: Sent, **address: Any) -> str:
        """Return a name for the form that includes its message."""
        return f"{self.act}-{form.texts.get('message', 0)}"


class Changes(WebhookAct):
    act, done = "Changes", "Webhook saved."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Change a webhook."""
        services.change(address["webhook_id"], _read(form, WebhookChangeBody), by=by)


class Tests(WebhookAct):
    act, done = "Tests", "Test message on its way. The result appears below in a few seconds."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Send a test message."""
        form.check([])
        services.test(address["webhook_id"], by=by)


def _form(request: HttpRequest) -> dict[str, Any]:
    return {
        "may_set": is_admin(request.user),
        "events": [(f"event.{name}", name, text) for name, text in EVENTS.items()],
        "queues": list(Queue.objects.exclude(state=Queue.State.REMOVED).order_by("name")),
    }


def _read(form: Sent, shape: type[Body]) -> Body:
    """Parse the form into a body of class `shape`. Raises InvalidInput.

    The form's checkboxes are the message types. An emptied filter matches any run."""
    boxes = {f"event.{name}": name for name in EVENTS}
    names = [name for name in _TEXTS if name in shape.model_fields]
    form.check([*boxes, *names, "has_content"])
    given: dict[str, Any] = {name: form.texts[name] for name in names if name in form.texts}
    if not given.get("url"):
        given.pop("url", None)
    given["events"] = [name for box, name in boxes.items() if form.texts.get(box) == "on"]
    given["has_content"] = form.texts.get("has_content") == "on"
    return fit(shape, given, "form")
