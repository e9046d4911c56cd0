"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.limits import views

urlpatterns = [
    path("limits", views.LimitsPage.as_view(), name="limits"),
    path("limits/settings", views.LimitSettings.as_view(), name="limit_settings"),
    path("limits/resets", views.LimitResets.as_view(), name="limit_resets"),
    path("limits/openings", views.BreakerOpenings.as_view(), name="breaker_openings"),
    path("limits/closings", views.BreakerClosings.as_view(), name="breaker_closings"),
]
