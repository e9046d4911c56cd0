"""The inbox's and the audit's addresses."""

from django.urls import path

from approvals import views, views_audit

urlpatterns = [
    path("inbox", views.InboxPage.as_view(), name="inbox"),
    path("inbox/<uuid:approval_id>", views.InboxPage.as_view(), name="approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decisions.as_view(), name="decision"),
    path("audit", views_audit.AuditPage.as_view(), name="audit"),
]
