from django.urls import path

from approvals.api import audit, views

urlpatterns = [
    path("audit", audit.Audit.as_view(), name="api-audit"),
    path("approvals", views.Approvals.as_view(), name="api-approvals"),
    path("approvals/<uuid:approval_id>", views.OneApproval.as_view(), name="api-approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decide.as_view(), name="api-approval-decision"),
]
