"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.limits import api

urlpatterns = [
    path("limits", api.Limits.as_view(), name="api-limits"),
    path("limits/reset", api.SteerLimit.as_view(action="reset"), name="api-limit-reset"),
    path("limits/open", api.SteerLimit.as_view(action="open"), name="api-limit-open"),
    path("limits/close", api.SteerLimit.as_view(action="close"), name="api-limit-close"),
]
