"""Pages of notice settings, the delivery log, and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

from approvals.notices import channels, log, mail, own
from approvals.notices.channels import ChannelBody, ChannelChangeBody, PreferenceBody
from approvals.notices.kinds import CHOSEN, KINDS, OF_OPERATORS, OF_QUEUES, Way
from approvals.outbox import Delivery
from approvals.queue_models import Queue
from approvals.queues.who import ADMIN, is_admin
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.bodies import fit
from ledger.web.cursors import placed, placed_at
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, OPERATOR, actor, ordered, roles
from runs.services.bodies import SteerBody

_OWN = 10  # deliveries on a person's own page


class ForPeople(Page):
    """For everybody with a role, and for administrators."""

    section = "notices"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader may get or configure notices."""
        return super().may_open(held) or is_admin(self.request.user)


class Mine(ForPeople):
    """The reader's own settings."""

    template = "notices/mine.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        assert request.user.pk is not None
        told = own.preference_of(request.user.pk)
        kinds = [
            (kind, [(way, f"{kind.name}.{way}", way in told["ways"][kind.name]) for way in Way]) for kind in CHOSEN
        ]
        context = {
            "kinds": kinds,
            "told": told,
            "typed": refused.typed if refused else {},
            "refused": refused,
            "zones": own.zones(),
            "is_mail_set": mail.is_set(),
            "digests": ("none", "hourly", "daily"),
            "deliveries": log.deliveries(person=request.user.pk, limit=_OWN)[:_OWN],
            "may_read_log": log.may_read(roles(request.user)) or is_admin(request.user),
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class Settings(Mine):
    """Save the reader's settings."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = _preference(form)
            own.prefer(body, by=_by(request))
        except DurableAgentsError as error:
            return self.tell(request, Refused("settings", error, form.kept))
        messages.success(request, "Notification settings saved.", extra_tags="ok")
        return redirect("notifications")


def _preference(form: Sent) -> PreferenceBody:
    """Read the form; an unticked box sends nothing, so every kind is set."""
    boxes = {f"{kind.name}.{way}": (kind.name, way.value) for kind in CHOSEN for way in Way}
    form.check([*boxes, *(name for name in PreferenceBody.model_fields if name != "ways")])
    ways: dict[str, list[str]] = {kind.name: [] for kind in CHOSEN}
    for box, (kind, way) in boxes.items():
        if form.texts.get(box) == "on":
            ways[kind].append(way)
    rest = {name: text for name, text in form.texts.items() if name not in boxes and text}
    return fit(PreferenceBody, {"ways": ways, **rest}, "form")


class Tests(ForPeople):
    """Send a test to oneself."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        own.ask_for_test(by=_by(request))
        words = "Test sent. The result appears below in a few seconds."
        messages.success(request, words, extra_tags="ok")
        return redirect("notifications")


class Browser(ForPeople):
    """Notices for an open page's script, taken when read."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        assert isinstance(request.user, User)
        return self.private(request, JsonResponse({"shown": own.show(request.user)}))


# --- for those who answer for it --------------------------------------------------------------------------------------


class LogPage(ForPeople):
    """The delivery log."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR})
    template = "notices/log.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None, at: int = 0) -> HttpResponse:
        """Show the page, with a form refused for one delivery."""
        state, by = request.GET.get("state", ""), request.GET.get("by", "")
        state = state if state in Delivery.State.values else ""
        by = by if by in Delivery.By.values else ""
        rows = log.deliveries(state=state, by=by, beyond=placed_at(request.GET.get("beyond", "")))
        more = placed(rows[log.PAGE - 1].row.made_at, rows[log.PAGE - 1].row.pk) if rows[log.PAGE :] else ""
        context = {
            "deliveries": rows[: log.PAGE],
            "state": state,
            "by": by,
            "more": more,
            "refused": refused,
            "at": at,
            "states": Delivery.State.values,
            "ways": Delivery.By.values,
            "may_replay": OPERATOR in roles(request.user) or is_admin(request.user),
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class Replays(LogPage):
    """Send a delivery again."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def post(self, request: HttpRequest, delivery_id: int) -> HttpResponse:
        form = Sent(request)
        try:
            log.replay(delivery_id, by=_by(request), justification=form.read(SteerBody).justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused("replay", error, form.kept), delivery_id)
        messages.success(request, "Sending again.", extra_tags="ok")
        return redirect("notice_log")


class ChannelsPage(ForPeople):
    """Chats and mailboxes with their kinds."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR})
    template = "notices/channels.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None, at: int = 0) -> HttpResponse:
        """Show the page, with a form refused for one channel."""
        context = {
            "channels": [
                (row, [KINDS[kind] for kind in row.kinds if kind in KINDS], channels.seen_of(row))
                for row in channels.every()
            ],
            "may_set": is_admin(request.user),
            "refused": refused,
            "at": at,
            "typed": refused.typed if refused else {},
            "queues": list(Queue.objects.exclude(state=Queue.State.REMOVED).order_by("name")),
            "kinds": [KINDS[name] for name in (*OF_QUEUES, *OF_OPERATORS)],
            "of_queues": OF_QUEUES,
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class ForAdmins(ChannelsPage):
    """An act for administrators; the service checks it again."""

    http_method_names = ["post"]
    words = ""

    def may_open(self, held: frozenset[str]) -> bool:
        return self.request.method != "POST" or is_admin(self.request.user)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the role that is allowed."""
        return self.show(request, {"needed": ["Administrator"]}, template="errors/403.html", status=403)

    def post(self, request: HttpRequest, channel_id: int = 0) -> HttpResponse:
        form = Sent(request)
        try:
            self.act(form, channel_id, _by(request))
        except DurableAgentsError as error:
            return self.tell(request, Refused(f"{type(self).__name__}-{channel_id}", error, form.kept), channel_id)
        messages.success(request, self.words, extra_tags="ok")
        return redirect("channels")

    def act(self, form: Sent, channel_id: int, by: Actor) -> None:
        """Call the page's one service."""
        raise NotImplementedError


class NewChannel(ForAdmins):
    words = "Channel added."

    def act(self, form: Sent, channel_id: int, by: Actor) -> None:
        channels.add(fit(ChannelBody, _channel(form, ChannelBody), "form"), by=by)


class ChannelChanges(ForAdmins):
    words = "Channel saved."

    def act(self, form: Sent, channel_id: int, by: Actor) -> None:
        seen = form.aside("seen")
        body = fit(ChannelChangeBody, _channel(form, ChannelChangeBody), "form")
        channels.change(channel_id, body, seen=seen, by=by)


class ChannelEnds(ForAdmins):
    words = "Channel removed."

    def act(self, form: Sent, channel_id: int, by: Actor) -> None:
        channels.end(channel_id, by=by, justification=form.read(SteerBody).justification)


class ChannelTests(ForAdmins):
    words = "Test sent. See the log for the result."

    def act(self, form: Sent, channel_id: int, by: Actor) -> None:
        form.check([])
        channels.ask_for_test(channel_id, by=by)


def _channel(form: Sent, shape: Callable[..., Any]) -> dict[str, Any]:
    """Read the form, whose boxes are the kinds."""
    boxes = {f"kind.{name}": name for name in (*OF_QUEUES, *OF_OPERATORS)}
    fields = (
        ("name", "queue", "form", "address", "justification") if shape is ChannelBody else ("address", "justification")
    )
    form.check([*boxes, *fields])
    kinds = [name for box, name in boxes.items() if form.texts.get(box) == "on"]
    rest = {name: text for name, text in form.texts.items() if name in fields and text}
    return {**rest, "kinds": kinds} if kinds or shape is ChannelBody else rest


def _by(request: HttpRequest) -> Actor:
    held = roles(request.user)
    role = OPERATOR if OPERATOR in held else ADMIN if is_admin(request.user) else (ordered(held) or [""])[0]
    return actor(request, role)
