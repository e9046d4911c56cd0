"""URLs of this app's pages and forms."""

from django.urls import path

from durableagents.contrib.reports import views
from durableagents.contrib.reports.insights import InsightsPage

urlpatterns = [
    path("insights", InsightsPage.as_view(), name="insights"),
    path("audit/reports", views.ReportsPage.as_view(), name="reports"),
    path("audit/reports/stored/<int:stored_id>", views.StoredPage.as_view(), name="stored_report"),
    path("audit/reports/<str:report>", views.ReportPage.as_view(), name="report"),
    path("audit/findings", views.NewFinding.as_view(), name="new_finding"),
    path("audit/findings/<int:finding_id>/closures", views.NewClosure.as_view(), name="finding_closures"),
    path("runs/<uuid:run_id>/report", views.RunReportPage.as_view(), name="run_report"),
]
