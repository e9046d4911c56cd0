"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.casework import views

urlpatterns = [
    path("approvals/<uuid:approval_id>/claims", views.Claims.as_view(), name="claims"),
    path("approvals/<uuid:approval_id>/releases", views.Releases.as_view(), name="releases"),
]
