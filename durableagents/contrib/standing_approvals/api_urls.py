"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.standing_approvals import api

urlpatterns = [
    path("queues/<str:queue>/grants", api.QueueGrants.as_view(), name="api-queue-grants"),
    path("grants", api.Grants.as_view(), name="api-grants"),
    path("grants/<int:grant_id>", api.OneGrant.as_view(), name="api-grant"),
    path("grants/<int:grant_id>/end", api.GrantEnd.as_view(), name="api-grant-end"),
]
