"""URLs of the API."""

from django.urls import path

from durableagents.contrib.reports import api

urlpatterns = [
    path("reports", api.Reports.as_view(), name="api-reports"),
    path("reports/<str:report>", api.OneReport.as_view(), name="api-report"),
    path("stored-reports", api.StoredReports.as_view(), name="api-stored-reports"),
    path("stored-reports/<int:stored_id>", api.OneStoredReport.as_view(), name="api-stored-report"),
    path("findings", api.Findings.as_view(), name="api-findings"),
    path("findings/<int:finding_id>/close", api.FindingClosing.as_view(), name="api-finding-close"),
]
