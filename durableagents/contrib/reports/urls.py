"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.reports import api, views
from durableagents.contrib.reports.insights import InsightsPage

api_urls = [
    path("reports", api.Reports.as_view(), name="api-reports"),
    path("reports/<str:report>", api.OneReport.as_view(), name="api-report"),
    path("stored-reports", api.StoredReports.as_view(), name="api-stored-reports"),
    path("stored-reports/<int:stored_id>", api.OneStoredReport.as_view(), name="api-stored-report"),
    path("findings", api.Findings.as_view(), name="api-findings"),
    path("findings/<int:finding_id>/close", api.FindingClosing.as_view(), name="api-finding-close"),
]

console_urls = [
    path("insights", InsightsPage.as_view(), name="insights"),
    path("audit/reports", views.ReportsPage.as_view(), name="reports"),
    path("audit/reports/stored/<int:stored_id>", views.StoredPage.as_view(), name="stored_report"),
    path("audit/reports/<str:report>", views.ReportPage.as_view(), name="report"),
    path("audit/findings", views.NewFinding.as_view(), name="new_finding"),
    path("audit/findings/<int:finding_id>/closures", views.NewClosure.as_view(), name="finding_closures"),
    path("runs/<uuid:run_id>/report", views.RunReportPage.as_view(), name="run_report"),
]
