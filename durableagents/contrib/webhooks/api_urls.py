"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.webhooks import api

urlpatterns = [
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
