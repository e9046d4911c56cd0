"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.evidence import api, views

api_urls = [path("runs/<uuid:run_id>/evidence", api.RunEvidence.as_view(), name="api-run-evidence")]

console_urls = [
    path("runs/<uuid:run_id>/evidence", views.RunEvidence.as_view(), name="evidence"),
    path("runs/<uuid:run_id>/evidence/exports", views.RunExports.as_view(), name="evidence_exports"),
]
