"""URLs of the console."""

from django.urls import path

from durableagents.contrib.evidence import views

urlpatterns = [
    path("runs/<uuid:run_id>/evidence", views.RunEvidence.as_view(), name="evidence"),
    path("runs/<uuid:run_id>/evidence/exports", views.RunExports.as_view(), name="evidence_exports"),
]
