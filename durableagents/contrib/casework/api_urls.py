"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.casework import api

urlpatterns = [
    path("approvals/<uuid:approval_id>/claim", api.Claims.as_view(), name="api-approval-claim"),
    path("approvals/<uuid:approval_id>/release", api.Releases.as_view(), name="api-approval-release"),
    *(path(f"approvals/<uuid:approval_id>/{at}", view, name=name) for (at, name), view in api.ACTS.items()),
]
