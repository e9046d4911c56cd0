"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.casework import api

urlpatterns = [
    path("approvals/<uuid:approval_id>/claim", api.Claims.as_view(), name="api-approval-claim"),
    path("approvals/<uuid:approval_id>/release", api.Releases.as_view(), name="api-approval-release"),
    path("approvals/<uuid:approval_id>/inquiries", api.Inquiries.as_view(), name="api-inquiries"),
    path(
        "approvals/<uuid:approval_id>/inquiries/<int:n>/answer",
        api.InquiryAnswer.as_view(),
        name="api-inquiry-answer",
    ),
    path(
        "approvals/<uuid:approval_id>/inquiries/<int:n>/withdraw",
        api.InquiryWithdraw.as_view(),
        name="api-inquiry-withdraw",
    ),
    path("approvals/<uuid:approval_id>/delegations", api.Delegations.as_view(), name="api-delegations"),
    path(
        "approvals/<uuid:approval_id>/delegations/<int:n>/end",
        api.DelegationEnd.as_view(),
        name="api-delegation-end",
    ),
]
