from django.urls import path

from approvals import api, api_audit

urlpatterns = [
    path("audit", api_audit.Audit.as_view(), name="api-audit"),
    path("approvals", api.Approvals.as_view(), name="api-approvals"),
    path("approvals/<uuid:approval_id>", api.OneApproval.as_view(), name="api-approval"),
    path("approvals/<uuid:approval_id>/decision", api.Decide.as_view(), name="api-approval-decision"),
]
