"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.casework import views

urlpatterns = [
    path("approvals/<uuid:approval_id>/claims", views.Claims.as_view(), name="claims"),
    path("approvals/<uuid:approval_id>/releases", views.Releases.as_view(), name="releases"),
    path("approvals/<uuid:approval_id>/inquiries", views.Inquiries.as_view(), name="inquiries"),
    path("approvals/<uuid:approval_id>/inquiries/<int:n>/answers", views.Answers.as_view(), name="case_answers"),
    path(
        "approvals/<uuid:approval_id>/inquiries/<int:n>/withdrawals",
        views.InquiryWithdrawals.as_view(),
        name="inquiry_withdrawals",
    ),
    path("approvals/<uuid:approval_id>/delegations", views.Delegations.as_view(), name="delegations"),
    path(
        "approvals/<uuid:approval_id>/delegations/<int:n>/ends",
        views.DelegationEnds.as_view(),
        name="delegation_ends",
    ),
]
