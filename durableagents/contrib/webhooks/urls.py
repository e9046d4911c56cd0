"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from typing import Any

from django.urls import path

from durableagents.contrib.webhooks import api, services, views
from durableagents.contrib.webhooks.services import ReplayBody, SecretBody
from ledger.web.page_acts import whole

api_urls = [
    path("webhooks", api.Webhooks.as_view(), name="api-webhooks"),
    path("webhooks/<int:webhook_id>", api.OneWebhook.as_view(), name="api-webhook"),
    path("webhooks/<int:webhook_id>/secret", api.Secrets.as_view(), name="api-webhook-secret"),
    path("webhooks/<int:webhook_id>/pause", api.Pauses.as_view(), name="api-webhook-pause"),
    path("webhooks/<int:webhook_id>/resume", api.Resumptions.as_view(), name="api-webhook-resume"),
    path("webhooks/<int:webhook_id>/end", api.Ends.as_view(), name="api-webhook-end"),
    path("webhooks/<int:webhook_id>/test", api.Tests.as_view(), name="api-webhook-test"),
    path("webhooks/<int:webhook_id>/replay", api.Replays.as_view(), name="api-webhook-replay"),
    path("webhooks/<int:webhook_id>/messages", api.Messages.as_view(), name="api-webhook-messages"),
]

_SECRET = {"body": SecretBody, "reads": {"overlap_hours": whole}}
_REPLAY = {"body": ReplayBody, "reads": {"message": whole, "only_failed": lambda text: text == "on"}}
_ACTS: list[tuple[str, Any, str, dict[str, Any]]] = [
    ("secrets", services.rotate, "", _SECRET),
    ("pauses", services.pause, "Webhook paused. Its messages are kept for 30 days.", {}),
    ("resumptions", services.resume, "Webhook resumed.", {}),
    ("ends", services.end, "Webhook ended.", {}),
    ("replays", services.replay, "Sending again.", _REPLAY),
]

console_urls = [
    path("webhooks", views.WebhooksPage.as_view(), name="webhooks"),
    path("webhooks/new", views.NewWebhook.as_view(), name="new_webhook"),
    path("webhooks/<int:webhook_id>", views.WebhookPage.as_view(), name="webhook"),
    path("webhooks/<int:webhook_id>/changes", views.Changes.as_view(), name="webhook_changes"),
    path("webhooks/<int:webhook_id>/tests", views.Tests.as_view(), name="webhook_tests"),
]
for _name, _service, _done, _read in _ACTS:
    _view = views.WebhookAct.as_view(service=_service, act=_name.capitalize(), done=_done, **_read)
    console_urls.append(path(f"webhooks/<int:webhook_id>/{_name}", _view, name=f"webhook_{_name}"))
