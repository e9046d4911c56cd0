"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.retention import api

urlpatterns = [
    path("retention", api.Rules.as_view(), name="api-retention"),
    path("retention/policies", api.Policies.as_view(), name="api-retention-policies"),
    path("retention/policies/<int:policy_id>/end", api.PolicyEnds.as_view(), name="api-retention-policy-end"),
    path("retention/holds", api.Holds.as_view(), name="api-legal-holds"),
    path("retention/holds/<int:hold_id>/lift", api.HoldEnds.as_view(), name="api-legal-hold-lift"),
    path("retention/archives", api.ArchivedRuns.as_view(), name="api-archived-runs"),
    path("retention/archives/<uuid:archived_id>", api.ArchivedRun.as_view(), name="api-archived-run"),
    path("retention/archives/<uuid:archived_id>/events", api.ArchivedEvents.as_view(), name="api-archived-run-events"),
    path("retention/archives/<uuid:archived_id>/restore", api.Restorations.as_view(), name="api-archived-run-restore"),
]
