"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.retention import views

urlpatterns = [
    path("retention", views.RetentionPage.as_view(), name="retention"),
    path("retention/policies", views.NewPolicy.as_view(), name="new_retention_policy"),
    path("retention/policies/<int:policy_id>/ends", views.PolicyEnds.as_view(), name="retention_policy_ends"),
    path("retention/holds", views.NewHold.as_view(), name="new_legal_hold"),
    path("retention/holds/<int:hold_id>/ends", views.HoldEnds.as_view(), name="legal_hold_ends"),
    path("archive/<uuid:archived_id>", views.ArchivedRunPage.as_view(), name="archived_run"),
    path("archive/<uuid:archived_id>/restorations", views.Restorations.as_view(), name="restorations"),
]
