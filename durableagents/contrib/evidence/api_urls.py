"""URLs of the API."""

from django.urls import path

from durableagents.contrib.evidence import api

urlpatterns = [path("runs/<uuid:run_id>/evidence", api.RunEvidence.as_view(), name="api-run-evidence")]
