"""Pages for notification settings, the delivery log and channels, and the forms for your own devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

from approvals.queue_models import Queue
from approvals.queues.views import ForAdmins
from approvals.queues.who import ADMIN, is_admin
from durableagents.contrib.notifications import channels, delivering, devices, preferences, queries
from durableagents.contrib.notifications.channels import ChannelBody, ChannelChangeBody
from durableagents.contrib.notifications.kinds import CHOSEN, KINDS, OF_OPERATORS, OF_QUEUES, Medium
from durableagents.contrib.notifications.models import Delivery
from durableagents.contrib.notifications.preferences import PreferenceBody
from durableagents.identity.browsers import browser_of
from durableagents.outgoing import mail
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.bodies import fit
from ledger.web.cursors import placed, placed_at
from ledger.web.navigation import pages_on
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_base import OwnPage
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import AUDITOR, EVERY, OPERATOR, actor, ordered, roles
from ledger.zones import zones

_MAX_OWN = 10  # deliveries listed on a person's own page
_COOKIE_SECONDS = 400 * 86_400  # browsers keep cookies no longer than this


class NotificationPage(FormPage):
    """Base of pages for people with any role, and for administrators."""

    section = "notifications"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader may receive or configure notifications."""
        return super().may_open(held) or is_admin(self.request.user)

    @property
    def by(self) -> Actor:
        held = roles(self.request.user)
        role = OPERATOR if OPERATOR in held else ADMIN if is_admin(self.request.user) else (ordered(held) or [""])[0]
        return actor(self.request, role)


class NotificationAct(Act, NotificationPage):
    by = NotificationPage.by


class Mine(NotificationPage):
    """The reader's own settings."""

    template = "notifications/mine.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        assert request.user.pk is not None
        own = preferences.settings_of(request.user.pk)
        context = {
            "kinds": [
                (kind, [(by, f"{kind.name}.{by}", by in own.ways[kind.name]) for by in Medium]) for kind in CHOSEN
            ],
            "own": own,
            "zones": sorted(zones()),
            "is_mail_set": mail.is_set(),
            "deliveries": queries.find_deliveries(person=request.user.pk, limit=_MAX_OWN)[:_MAX_OWN],
            "may_read_log": queries.may_read_log(roles(request.user)) or is_admin(request.user),
        }
        return self.show_forms(request, context, refused)


class Settings(NotificationAct, Mine):
    """Save the reader's settings."""

    act, done, page = "settings", "Notification settings saved.", "notifications"

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Save the settings in the form."""
        preferences.save_settings(_preference_body(form), by=by)


def _preference_body(form: Sent) -> PreferenceBody:
    """Read the form. Every kind is set, because browsers don't send unticked boxes."""
    boxes = {f"{kind.name}.{by}": (kind.name, by.value) for kind in CHOSEN for by in Medium}
    form.check([*boxes, *(name for name in PreferenceBody.model_fields if name != "ways")])
    ways: dict[str, list[str]] = {kind.name: [] for kind in CHOSEN}
    for box, (kind, by) in boxes.items():
        if form.texts.get(box) == "on":
            ways[kind].append(by)
    rest = {name: text for name, text in form.texts.items() if name not in boxes and text}
    return fit(PreferenceBody, {"ways": ways, **rest}, "form")


class Tests(NotificationPage):
    """Send a test notification to the user themselves."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        preferences.request_test(by=self.by)
        messages.success(request, "Test sent. The result appears below in a few seconds.", extra_tags="ok")
        return redirect("notifications")


class Browser(NotificationPage):
    """Notifications for an open page's script. Fetching notifications marks them as delivered."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        assert isinstance(request.user, User)
        return self.private(request, JsonResponse({"shown": delivering.take_for_page(request.user)}))


# --- one's own devices, on the page of one's account ------------------------------------------------------------------


def _own_page() -> str:
    """Return the URL name of the reader's account page, or of the notifications page if no app provides one."""
    views = [page.view for page in pages_on("account", frozenset(EVERY))]
    return "account" if "account" in views else "notifications"


class Devices(OwnPage):
    """Register this browser for notifications."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form, name = Sent(request), browser_of(request.META.get("HTTP_USER_AGENT", ""))
        response = redirect(_own_page())
        try:
            _, token = devices.subscribe(form.read(devices.DeviceBody), name, by=actor(request, ""))
        except DurableAgentsError as refusal:
            messages.error(request, refusal.detail, extra_tags="bad")
            return response
        messages.success(request, "This device now receives notifications.", extra_tags="ok")
        response.set_cookie(
            devices.cookie_name(),
            token,
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="Lax",
            secure=settings.SESSION_COOKIE_SECURE,
        )
        return response


class DeviceRemovals(OwnPage):
    """Remove one of the caller's own devices."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, device_id: int) -> HttpResponse:
        devices.remove(device_id, by=actor(request, ""))
        messages.success(request, "Device removed.", extra_tags="ok")
        return redirect(_own_page())


# --- the log and channels ---------------------------------------------------------------------------------------------


class LogPage(NotificationPage):
    """The delivery log."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR})
    template = "notifications/log.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None, delivery_id: int = 0) -> HttpResponse:
        """Show the page, with the errors of a form refused for one delivery."""
        state, by = request.GET.get("state", ""), request.GET.get("by", "")
        state = state if state in Delivery.State.values else ""
        by = by if by in Delivery.By.values else ""
        rows = queries.find_deliveries(state=state, by=by, beyond=placed_at(request.GET.get("beyond", "")))
        last = rows[queries.PAGE - 1] if rows[queries.PAGE :] else None
        context = {
            "deliveries": rows[: queries.PAGE],
            "state": state,
            "by": by,
            "more": placed(last.made_at, last.id) if last else "",
            "at": delivery_id,
            "states": Delivery.State.values,
            "media": Delivery.By.values,
            "may_replay": OPERATOR in roles(request.user) or is_admin(request.user),
        }
        return self.show_forms(request, context, refused)


class Replays(NotificationAct, LogPage):
    """Send a delivery again."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    act, done, page = "replay", "Sending again.", "notice_log"
    service = staticmethod(channels.replay)


class ChannelsPage(NotificationPage):
    """Chats and mailboxes with their kinds."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR})
    template = "notifications/channels.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None, channel_id: int = 0) -> HttpResponse:
        """Show the page, with the errors of a form refused for one channel."""
        context = {
            "channels": [
                (
                    channels.channel_row(row),
                    [KINDS[kind].label for kind in row.kinds if kind in KINDS],
                    channels.mark(row),
                )
                for row in channels.list_channels()
            ],
            "may_set": is_admin(request.user),
            "at": channel_id,
            "queues": list(Queue.objects.exclude(state=Queue.State.REMOVED).order_by("name")),
            "kinds": [(KINDS[name], f"kind.{name}") for name in (*OF_QUEUES, *OF_OPERATORS)],
            "of_queues": OF_QUEUES,
        }
        return self.show_forms(request, context, refused)


class ChannelAct(ForAdmins, NotificationAct, ChannelsPage):
    """Base of administrators' acts. The service checks the account again."""

    page = "channels"

    def name_form(self, form: Sent, **address: Any) -> str:
        """Return a name for the form that includes its channel."""
        return f"{type(self).__name__}-{address.get('channel_id', 0)}"


class NewChannel(ChannelAct):
    done = "Channel added."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Add a channel."""
        channels.add(fit(ChannelBody, _channel_values(form, ChannelBody), "form"), by=by)


class ChannelChanges(ChannelAct):
    done = "Channel saved."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Change a channel."""
        seen = form.aside("seen")
        body = fit(ChannelChangeBody, _channel_values(form, ChannelChangeBody), "form")
        channels.change(address["channel_id"], body, seen=seen, by=by)


class ChannelEnds(ChannelAct):
    done = "Channel removed."
    service = staticmethod(channels.end)


class ChannelTests(ChannelAct):
    done = "Test sent. See the log for the result."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Send a test message."""
        form.check([])
        channels.request_test(address["channel_id"], by=by)


def _channel_values(form: Sent, body: Callable[..., Any]) -> dict[str, Any]:
    """Read the form. The form's checkboxes are the kinds."""
    boxes = {f"kind.{name}": name for name in (*OF_QUEUES, *OF_OPERATORS)}
    fields = (
        ("name", "queue", "form", "address", "justification") if body is ChannelBody else ("address", "justification")
    )
    form.check([*boxes, *fields])
    kinds = [name for box, name in boxes.items() if form.texts.get(box) == "on"]
    rest = {name: text for name, text in form.texts.items() if name in fields and text}
    return {**rest, "kinds": kinds} if kinds or body is ChannelBody else rest
