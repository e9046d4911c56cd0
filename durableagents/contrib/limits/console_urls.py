"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.limits import budget_views, views

urlpatterns = [
    path("limits", views.LimitsPage.as_view(), name="limits"),
    path("limits/settings", views.LimitSettings.as_view(), name="limit_settings"),
    path("limits/resets", views.LimitResets.as_view(), name="limit_resets"),
    path("limits/openings", views.BreakerOpenings.as_view(), name="breaker_openings"),
    path("limits/closings", views.BreakerClosings.as_view(), name="breaker_closings"),
    path("shared-budgets", budget_views.SharedBudgetsPage.as_view(), name="shared_budgets"),
    path("shared-budgets/new", budget_views.NewSharedBudget.as_view(), name="new_shared_budget"),
    path(
        "shared-budgets/<int:budget_id>/limits", budget_views.SharedBudgetLimits.as_view(), name="shared_budget_limits"
    ),
    path(
        "shared-budgets/<int:budget_id>/closings",
        budget_views.SharedBudgetClosings.as_view(),
        name="shared_budget_closings",
    ),
]
