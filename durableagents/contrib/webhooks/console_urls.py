"""URLs of this app's pages and forms."""

from typing import Any

from django.urls import path

from durableagents.contrib.webhooks import services, views
from durableagents.contrib.webhooks.services import ReplayBody, SecretBody
from ledger.web.page_acts import whole

_SECRET = {"body": SecretBody, "reads": {"overlap_hours": whole}}
_REPLAY = {"body": ReplayBody, "reads": {"message": whole, "only_failed": lambda text: text == "on"}}
_ACTS: list[tuple[str, Any, str, dict[str, Any]]] = [
    ("secrets", services.rotate, "", _SECRET),
    ("pauses", services.pause, "Webhook paused. Its messages are kept for 30 days.", {}),
    ("resumptions", services.resume, "Webhook resumed.", {}),
    ("ends", services.end, "Webhook ended.", {}),
    ("replays", services.replay, "Sending again.", _REPLAY),
]

urlpatterns = [
    path("webhooks", views.WebhooksPage.as_view(), name="webhooks"),
    path("webhooks/new", views.NewWebhook.as_view(), name="new_webhook"),
    path("webhooks/<int:webhook_id>", views.WebhookPage.as_view(), name="webhook"),
    path("webhooks/<int:webhook_id>/changes", views.Changes.as_view(), name="webhook_changes"),
    path("webhooks/<int:webhook_id>/tests", views.Tests.as_view(), name="webhook_tests"),
]
for _name, _service, _done, _read in _ACTS:
    _view = views.WebhookAct.as_view(service=_service, act=_name.capitalize(), done=_done, **_read)
    urlpatterns.append(path(f"webhooks/<int:webhook_id>/{_name}", _view, name=f"webhook_{_name}"))
