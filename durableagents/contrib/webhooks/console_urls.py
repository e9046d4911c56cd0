"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.webhooks import views

urlpatterns = [
    path("webhooks", views.WebhooksPage.as_view(), name="webhooks"),
    path("webhooks/new", views.NewWebhook.as_view(), name="new_webhook"),
    path("webhooks/<int:webhook_id>", views.WebhookPage.as_view(), name="webhook"),
    path("webhooks/<int:webhook_id>/changes", views.Changes.as_view(), name="webhook_changes"),
    path("webhooks/<int:webhook_id>/secrets", views.Secrets.as_view(), name="webhook_secrets"),
    path("webhooks/<int:webhook_id>/pauses", views.Pauses.as_view(), name="webhook_pauses"),
    path("webhooks/<int:webhook_id>/resumptions", views.Resumptions.as_view(), name="webhook_resumptions"),
    path("webhooks/<int:webhook_id>/ends", views.Ends.as_view(), name="webhook_ends"),
    path("webhooks/<int:webhook_id>/tests", views.Tests.as_view(), name="webhook_tests"),
    path("webhooks/<int:webhook_id>/replays", views.Replays.as_view(), name="webhook_replays"),
]
