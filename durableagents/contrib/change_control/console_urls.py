"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.change_control import views

urlpatterns = [
    path("changes", views.ChangesPage.as_view(), name="rule_changes"),
    path("changes/guards", views.Guards.as_view(), name="four_eyes"),
    path("changes/<uuid:change_id>", views.ChangePage.as_view(), name="rule_change"),
    path("changes/<uuid:change_id>/agreements", views.Agreements.as_view(), name="rule_change_agreements"),
    path("changes/<uuid:change_id>/refusals", views.Refusals.as_view(), name="rule_change_refusals"),
    path("changes/<uuid:change_id>/withdrawals", views.Withdrawals.as_view(), name="rule_change_withdrawals"),
]
